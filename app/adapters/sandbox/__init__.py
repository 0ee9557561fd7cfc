"""The backends of the Sandbox port.

`process` and `docker` start sandboxes, `pool` keeps them warm, `warm_sandbox` runs trials in one
over its `connection`, in `frames`, and `verdict` derives the outcome from its report.  The code
inside a sandbox is `workers.harness`.  Nothing here interprets what a program wrote, but for the
strict JSON of a result.
"""
