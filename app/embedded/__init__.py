"""The embedded stack: a real Postgres, a real Valkey and Celery workers as child processes."""
