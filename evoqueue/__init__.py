"""The Python interface of Evoqueue: `evolve` and `evolve_function`; docs/python.md has examples."""

from app.api import Result, Search, Settings, evolve, evolve_function
from app.reports.progress import Progress

__all__ = ["Progress", "Result", "Search", "Settings", "evolve", "evolve_function"]
