"""The ledger on Postgres: SQLAlchemy Core statements, one module an aggregate."""
