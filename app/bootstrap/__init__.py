"""The composition root: the only package that assigns adapters to ports.

Its modules are divided by the processes that need them, so that each imports what it uses: a
command that reads the ledger imports neither Celery nor a model, and one that only loads a problem
or opens a sandbox needs no part of this package.
"""
