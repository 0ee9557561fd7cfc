"""A SIMULATED language model behind a real socket: `evoq mock-llm`, for demos, tests, benchmarks.

Knows the chat protocol, the domain's reading and editing of programs, and nothing of the ledger,
the queue or a run.  Everything it answers says that it is a simulation.
"""
