"""Parts of the fields of settings that their types do not say.

A section of a run's settings is a frozen dataclass.  The docstring below a field is its meaning,
the metadata of the field are its bounds (`ge`, `gt`, `le`, `lt`), by which `app.config` validates.
"""

LARGEST_INTEGER = 2**63 - 1
"""That a column of the ledger holds."""
