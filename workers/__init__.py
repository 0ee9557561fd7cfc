"""Celery tasks and the life of a worker process; `harness` is the code that enters the sandbox."""
