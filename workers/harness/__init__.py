"""What runs inside the sandbox: standard library only; never imports `app`.

These modules are sent over the sandbox's standard input and are imported there as the package
`evoq_harness`, so any image or interpreter from Python 3.10 on can serve as a sandbox.
Nothing here depends on Docker: a
container and a child process of the worker run the same code.
"""
