"""The client of a ledger: where runs live, how one is started, worked on and followed.

Nothing here knows a terminal or a page: the command line, the Python interface and the dashboard
stand above it.
"""
