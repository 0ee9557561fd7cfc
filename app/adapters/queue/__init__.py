"""Executors: ways to have a step run at least once, somewhere, later."""
