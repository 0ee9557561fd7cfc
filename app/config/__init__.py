"""Settings: their models, the sources they are read from, and the checks between them."""
