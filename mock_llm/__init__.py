"""A SIMULATED language model behind a real socket: `evoq mock-llm`, for demos, tests, benchmarks.

The package may import the domain, whose readers and editors of programs it uses, and nothing of the
ledger, the queue or a run.  Each of its answers says that it is a simulation.
"""
