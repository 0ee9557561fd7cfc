"""A worker's loop and the signals that it is sent."""

import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from kombu.asynchronous import Hub

from tests.integration.worker_double import until
from workers.lifecycle import wake_on_signals


def test_a_signal_ends_the_wait_of_a_workers_loop() -> None:
    hub = Hub()
    before = signal.getsignal(signal.SIGUSR1), signal.set_wakeup_fd(-1)
    handled = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: handled.set())
    hub.call_later(600.0, lambda: None)  # nothing else ends its wait
    try:
        wake_on_signals(SimpleNamespace(hub=hub))
        loop = hub.create_loop()
        main = threading.main_thread().ident
        assert main is not None
        threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGUSR1)).start()
        until(lambda: next(loop) or handled.is_set(), what="the signal")
    finally:
        signal.signal(signal.SIGUSR1, before[0])
        signal.set_wakeup_fd(before[1])
        hub.close()


@pytest.mark.parametrize(("queues", "imported"), [(["gpu"], True), (["cpu", "control"], False)])
def test_a_worker_that_generates_imports_the_client_of_models_at_its_start(
    queues: list[str], imported: bool
) -> None:
    """In a process of its own: the client may be imported here."""
    code = f"""
import sys, threading
from types import SimpleNamespace
from workers.lifecycle import import_models

assert "openai" not in sys.modules
queues = SimpleNamespace(consume_from={queues!r})
import_models(SimpleNamespace(app=SimpleNamespace(amqp=SimpleNamespace(queues=queues))))
for thread in threading.enumerate():
    if thread.name == "import models":
        thread.join()
print("openai" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)

    assert done.stdout.strip() == str(imported), done.stderr
