"""Process entry points, and what enters the sandbox."""
