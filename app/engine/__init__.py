"""The steps of a search.  Each loads, decides with the domain, saves, then enqueues."""
