"""Celery workers with the real application and tasks, whose steps only write notes to Redis.

`install` writes a start-up module that replaces the engine's steps by these; every Python process
started with the returned environment has them.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

STARTUP = """
import dataclasses, os, sys, time, types
from app.startup import start_quickly

start_quickly()

def client():
    import redis
    return redis.Redis.from_url(os.environ["EVOQ_REDIS_URL"])

def note(step, nap=0.0):
    def run(ctx, subject):
        connection = client()
        connection.rpush("began:" + step, subject)
        if subject == 13:
            raise ZeroDivisionError("a defect of ours")
        if subject == 14:
            from app.ports.protocols import Unavailable
            raise Unavailable("nobody answers")
        time.sleep(nap)
        for attempt in range(100):
            try:
                client().rpush("done:" + step, subject)
                break
            except Exception:
                time.sleep(0.1)
    return run

class Sandbox:
    def close(self):
        try:
            client().incr("closed")
        except Exception:
            pass

@dataclasses.dataclass
class Context:
    sandbox: object = dataclasses.field(default_factory=Sandbox)
    store: object = None
    tracing: object = None

def worker_context():
    if os.environ.get("DOUBLE_FAULT"):
        from app.ports.protocols import Unavailable
        raise Unavailable(os.environ["DOUBLE_FAULT"])
    return Context()

bootstrap = types.ModuleType("app.bootstrap.worker")
bootstrap.worker_context = worker_context

class Recorder:
    def close(self):
        try:
            client().incr("worker time written")
        except Exception:
            pass

bootstrap.with_worker_time = lambda ctx, queues, report: (ctx, Recorder())
bootstrap.worker_engine = lambda: None
steps = types.ModuleType("app.engine.steps")
steps.generate = note("generate", float(os.environ.get("DOUBLE_NAP", "0")))
steps.evaluate = note("evaluate")
steps.produce = note("produce")
steps.reap = note("reap")

def produce_all(ctx, plan):
    client().hset("environment:produce", mapping=dict(os.environ))
    client().incr("ticks:produce")

steps.produce_all = produce_all
steps.reap_all = lambda ctx, enqueue: client().incr("ticks:reap")
sys.modules["app.bootstrap.worker"] = bootstrap
sys.modules["app.engine.steps"] = steps
import app.engine
app.engine.steps = steps
"""


def install(folder: Path, **more: str) -> dict[str, str]:
    """Returns an environment whose Python processes have the steps above."""
    startup = folder / "double"
    startup.mkdir(exist_ok=True)
    (startup / "sitecustomize.py").write_text(STARTUP)
    repository = Path(__file__).parents[2]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(startup), str(repository)]),
        **more,
    }


def until(
    condition: Callable[[], object],
    seconds: float = 120.0,
    what: str = "it",
    pause_seconds: float = 0.05,
) -> None:
    """Waits for a condition and fails when it does not hold in time; generous for busy machines."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(pause_seconds)
