"""The four ports, the ledger's transaction, and what passes through them.

Each repository of the transaction has a module of its name, with the records that it takes and
returns; the module of that name in `app.adapters.store` has its statements.
"""
