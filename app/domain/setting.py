"""Parts of the fields of settings that their types do not say.

A section of a run's settings is a frozen dataclass.  The docstring below a field is its meaning,
the metadata of the field are its bounds (`ge`, `gt`, `le`, `lt`), by which `app.config` validates.
"""

MOST = 1_000_000_000
"""Of a weight or a price, so that no sum of them is beyond the doubles."""
LARGEST_INTEGER = 2**63 - 1
"""That a column of the ledger holds."""
