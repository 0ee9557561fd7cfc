"""Jobs on a real cluster: each test skips, with the reason, where none answers."""
