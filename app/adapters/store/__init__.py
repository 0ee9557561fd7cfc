"""The ledger on Postgres: statements in SQL, one module an aggregate."""
