"""The search itself, as values and pure functions; standard library only.

Nothing in this package reads a clock, a file, a socket, an environment variable or a global random
state.  Everything a function needs arrives as an argument; everything it decides leaves as a value.
"""
