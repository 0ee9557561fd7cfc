"""Search patterns over folders: each candidate has a branch of its own, and one branch commits.

The package knows neither runs nor the ledger: candidates are callables or commands of the caller,
run in processes of this machine and in no sandbox.  docs/patterns.md has examples.
"""
