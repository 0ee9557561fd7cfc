"""The web dashboard: pages, `/api` and `/ws`.

It reads the ledger through reports and repositories, and changes a run only through
`app.engine.lifecycle`.  It holds no state that a restart would lose, and may import everything but
`app.cli`.  NiceGUI is imported by `pages` and `server` alone.
"""
