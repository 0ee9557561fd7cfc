"""What runs inside the sandbox: standard library only; never imports `app`.

These modules are sent over the cell's standard input and live there as the package `evoq_harness`,
so any image or interpreter from Python 3.10 on can be a cell.  Nothing here knows of Docker: a
container and a child process of the worker run the same code.
"""
