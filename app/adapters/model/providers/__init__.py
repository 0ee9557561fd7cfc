"""Providers: each module asks one kind of language model, or combines several."""
