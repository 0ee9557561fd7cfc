"""Sandbox backends: each module serves the Sandbox port by way of the cell protocol.

`process` and `docker` start cells, `pool` keeps them warm, `cell` talks to one, `verdict` says what
a report means.  What runs inside is `workers.harness`.
"""
