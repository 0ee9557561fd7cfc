"""Kubernetes Jobs: created, watched, read and deleted, for sandboxes and for branches of folders.

`manifests` and `endings` are pure: from a specification to documents, and from documents to an
ending.  `connection` alone imports the package `kubernetes`, when a cluster is needed.  Nothing
here knows programs, trials or branches.
"""
