"""Executors, which enqueue steps: each step then runs at least once, in some process."""
