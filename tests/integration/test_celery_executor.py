import json
import logging
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
from app.embedded.valkey import EmbeddedValkey
from app.ports.protocols import Executor, Step
from tests.contracts.executor import ExecutorContract


def application(redis_url: str) -> Celery:
    """Returns an application that takes a broker which is held up for no dead one."""
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
    def rung(self, executor: Executor) -> Callable[[Step, int], Sequence[int]]:
        heard: dict[str, list[int]] = {"generate": [], "evaluate": [], "produce": []}

        def listen(step: Step, expected: int) -> Sequence[int]:
            assert isinstance(executor, InlineExecutor)
            executor.drain(
                {
                    "generate": heard["generate"].append,
                    "evaluate": heard["evaluate"].append,
                    "produce": heard["produce"].append,
                },
                lambda: False,
            )
            return heard[step]

        return listen


class TestCeleryExecutor(ExecutorContract):
    @pytest.fixture
    def executor(self, valkey: str) -> Iterator[Executor]:
        built = application(valkey)
        yield CeleryExecutor(built)
        built.close()

    @pytest.fixture
    def rung(self, broker: redis.Redis) -> Callable[[Step, int], Sequence[int]]:
        def listen(step: Step, expected: int) -> Sequence[int]:
            messages = [json.loads(raw) for raw in broker.lrange(QUEUES[step], 0, -1)]
            ours = [m for m in reversed(messages) if m["headers"]["task"] == step]
            subjects = [n for m in ours for n in literal_eval(m["headers"]["argsrepr"])]
            assert len(subjects) == expected
            return subjects

        return listen

    def test_a_broker_that_is_down_costs_a_line_and_raises_nothing(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        built = application(f"unix://{tmp_path}/nobody.sock?db=0")
        with caplog.at_level(logging.WARNING, logger="app.adapters.queue.celery"):
            CeleryExecutor(built).submit("evaluate", [1])
            CeleryExecutor(built).submit("evaluate", [2, 3])
        built.close()
        lines = [r.getMessage() for r in caplog.records if r.name == "app.adapters.queue.celery"]
        assert ["evaluate 1: 1 bells" in lines[0], "evaluate 2: 2 bells" in lines[1]] == [
            True,
            True,
        ]
        assert len(lines) == 2

    def test_bells_are_rung_again_once_a_restarted_broker_answers(self, tmp_path: Path) -> None:
        server = EmbeddedValkey(tmp_path)
        address = server.start()
        built = application(address)
        executor = CeleryExecutor(built)
        executor.submit("evaluate", [1, 2])
        assert server._child is not None
        server._child.stop()
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
        told = [literal_eval(m["headers"]["argsrepr"]) for m in messages]
        assert told == [(1, 2), (3, 4), (5,)]

    def test_a_message_carries_a_name_and_a_number_and_stays_small(
        self, executor: Executor, broker: redis.Redis
    ) -> None:
        executor.submit("evaluate", [123456])
        [raw] = broker.lrange("cpu", 0, -1)
        assert len(raw) < 1500


def test_an_inline_bell_rung_by_a_step_is_answered_after_those_before_it() -> None:
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


def test_draining_stops_before_the_next_bell_when_told() -> None:
    executor, answered = InlineExecutor(), []
    executor.submit("evaluate", [1, 2, 3])
    executor.drain({"evaluate": answered.append}, lambda: len(answered) == 2)
    assert answered == [1, 2]
    executor.drain({"evaluate": answered.append}, lambda: False)
    assert answered == [1, 2, 3]
