import json
import logging
import os
import signal
from ast import literal_eval
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import redis
from celery import Celery

from app.adapters.queue.celery import CeleryExecutor
from app.adapters.queue.inline import InlineExecutor
from app.adapters.queue.transport import install
from app.celery import QUEUES, configuration
from app.embedded.children import read_record
from app.embedded.valkey import EmbeddedValkey
from app.ports.protocols import Executor, Step
from tests.contracts.executor import ExecutorContract
from tests.integration.worker_double import until


def application(redis_url: str) -> Celery:
    """Returns an application with a time-out that a slow broker on a busy machine keeps."""
    install()
    settings = configuration({"EVOQ_REDIS_URL": redis_url})
    built = Celery("test", set_as_current=False)
    built.conf.update(settings)
    built.conf.broker_transport_options = {
        **settings["broker_transport_options"],
        "socket_timeout": 60,
    }
    return built


class TestInlineExecutor(ExecutorContract):
    @pytest.fixture
    def executor(self) -> Executor:
        return InlineExecutor()

    @pytest.fixture
    def delivered(self, executor: Executor) -> Callable[[Step, int], Sequence[int]]:
        delivered: dict[str, list[int]] = {"generate": [], "evaluate": [], "produce": []}

        def read(step: Step, expected: int) -> Sequence[int]:
            assert isinstance(executor, InlineExecutor)
            executor.drain(
                {
                    "generate": delivered["generate"].append,
                    "evaluate": delivered["evaluate"].append,
                    "produce": delivered["produce"].append,
                },
                lambda: False,
            )
            return delivered[step]

        return read


class TestCeleryExecutor(ExecutorContract):
    @pytest.fixture
    def executor(self, valkey: str) -> Iterator[Executor]:
        built = application(valkey)
        yield CeleryExecutor(built)
        built.close()

    @pytest.fixture
    def delivered(self, broker: redis.Redis) -> Callable[[Step, int], Sequence[int]]:
        def read(step: Step, expected: int) -> Sequence[int]:
            messages = [json.loads(raw) for raw in broker.lrange(QUEUES[step], 0, -1)]
            sent = [m for m in reversed(messages) if m["headers"]["task"] == step]
            subjects = [n for m in sent for n in literal_eval(m["headers"]["argsrepr"])]
            assert len(subjects) == expected
            return subjects

        return read

    def test_a_broker_that_is_down_costs_a_line_and_raises_nothing(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        built = application(f"unix://{tmp_path}/nobody.sock?db=0")
        with caplog.at_level(logging.WARNING, logger="app.adapters.queue.celery"):
            CeleryExecutor(built).submit("evaluate", [1])
            CeleryExecutor(built).submit("evaluate", [2, 3])
            assert CeleryExecutor(built).queued("evaluate") == 0
        built.close()
        lines = [r.getMessage() for r in caplog.records if r.name == "app.adapters.queue.celery"]
        assert len(lines) == 2
        assert "evaluate 1: 1 steps not enqueued" in lines[0]
        assert "evaluate 2: 2 steps not enqueued" in lines[1]

    @pytest.mark.timing
    def test_messages_are_published_after_a_restart_of_the_broker(self, tmp_path: Path) -> None:
        server = EmbeddedValkey(tmp_path)
        address = server.start()
        built = application(address)
        executor = CeleryExecutor(built)
        executor.submit("evaluate", [1, 2])
        identity = read_record(tmp_path / "valkey.pid")
        assert identity is not None
        os.kill(identity.pid, signal.SIGTERM)
        until(lambda: not server.running, what="the end of the server")
        assert server.start() == address
        executor.submit("evaluate", [3, 4])
        executor.submit("evaluate", [5])
        with redis.Redis.from_url(address) as client:
            assert client.llen("cpu") == 5
        built.close()
        server.stop()

    def test_a_message_names_no_more_subjects_than_may_go_together(
        self, executor: Executor, broker: redis.Redis
    ) -> None:
        executor.submit("evaluate", [1, 2, 3, 4, 5], together=2)
        messages = [json.loads(raw) for raw in reversed(broker.lrange("cpu", 0, -1))]
        ids = [literal_eval(m["headers"]["argsrepr"]) for m in messages]
        assert ids == [(1, 2), (3, 4), (5,)]

    def test_a_message_carries_a_name_and_a_number_and_stays_small(
        self, executor: Executor, broker: redis.Redis
    ) -> None:
        executor.submit("evaluate", [123456])
        [raw] = broker.lrange("cpu", 0, -1)
        assert len(raw) < 1500


def test_a_message_that_a_step_enqueues_inline_is_handled_after_earlier_ones() -> None:
    executor, answered = InlineExecutor(), []

    def generate(subject: int) -> None:
        answered.append(("generate", subject))
        executor.submit("evaluate", [subject])

    executor.submit("generate", [1, 2])
    executor.drain(
        {"generate": generate, "evaluate": lambda n: answered.append(("evaluate", n))},
        lambda: False,
    )
    assert answered == [("generate", 1), ("generate", 2), ("evaluate", 1), ("evaluate", 2)]


def test_draining_stops_before_the_next_message_when_until_holds() -> None:
    executor, answered = InlineExecutor(), []
    executor.submit("evaluate", [1, 2, 3])
    executor.drain({"evaluate": answered.append}, lambda: len(answered) == 2)
    assert answered == [1, 2]
    executor.drain({"evaluate": answered.append}, lambda: False)
    assert answered == [1, 2, 3]
