"""The steps of a search.  Each loads, decides with the domain, saves, and only then rings."""
