"""A worker outlives its broker."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from queue import Empty

import pytest
import redis
from celery import Celery
from kombu import Connection

from app.adapters.queue.celery import CeleryExecutor
from app.adapters.queue.transport import ResilientChannel, ResilientTransport, install
from app.celery import configuration
from app.embedded.children import read_record
from app.embedded.valkey import EmbeddedValkey
from tests.integration.worker_double import install as install_double
from tests.integration.worker_double import until

RESTARTS = 2
"""One in order, and one by SIGKILL."""


@pytest.mark.timing
@pytest.mark.slow
def test_a_worker_outlives_restarts_of_the_broker_under_running_steps(tmp_path: Path) -> None:
    server = EmbeddedValkey(tmp_path / "valkey")
    address = server.start()
    environment = install_double(tmp_path, EVOQ_REDIS_URL=address, DOUBLE_NAP="0.7")
    log = tmp_path / "worker.log"
    with log.open("wb") as output:
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "app", "worker", "-Q", "gpu", "-c", "8"],
            cwd=tmp_path,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    application = Celery("sender", set_as_current=False)
    application.conf.update(configuration({"EVOQ_REDIS_URL": address}))
    executor = CeleryExecutor(application)
    try:
        for turn in range(RESTARTS):
            subjects = range(100 * (turn + 1), 100 * (turn + 1) + 24)
            executor.submit("generate", subjects)
            with redis.Redis.from_url(address) as client:
                until(lambda c=client, s=subjects: began(c) & set(s), what="a step under way")
            identity = read_record(server.home / "valkey.pid")
            assert identity is not None
            os.kill(identity.pid, signal.SIGKILL if turn % 2 else signal.SIGTERM)
            until(lambda: not server.running, what="the end of the server")
            assert server.start() == address
            after = 100 * (turn + 1) + 50
            executor.submit("generate", [after])
            with redis.Redis.from_url(address) as client:
                until(lambda c=client, a=after: a in done(c), what=f"step {after} after a restart")
            assert worker.poll() is None, log.read_text()
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(120) == 0
        assert "Unrecoverable error" not in log.read_text()
    finally:
        worker.kill()
        worker.wait()
        application.close()
        server.stop()


def test_one_client_serves_every_operation_of_a_channel(tmp_path: Path) -> None:
    install()
    with EmbeddedValkey(tmp_path) as address, connect(address) as connection:
        channel = connection.channel()
        assert isinstance(channel, ResilientChannel)
        assert isinstance(connection.transport, ResilientTransport)
        with channel.conn_or_acquire() as first, channel.conn_or_acquire() as second:
            assert first is second


def test_a_message_can_be_acknowledged_after_its_connection_is_gone(tmp_path: Path) -> None:
    install()
    with EmbeddedValkey(tmp_path) as address:
        connection = connect(address)
        queue = connection.SimpleQueue("queue")
        queue.put({"subject": 1})
        message = queue.get(timeout=60)
        message.channel.connection.client = None
        message.ack()
        assert message.acknowledged
        connection.transport.client = connection
        connection.release()


def test_a_worker_that_ends_in_order_puts_unfinished_messages_back(tmp_path: Path) -> None:
    install()
    with EmbeddedValkey(tmp_path) as address, redis.Redis.from_url(address) as client:
        connection = connect(address)
        queue = connection.SimpleQueue("queue")
        queue.put({"subject": 1})
        queue.put({"subject": 2})
        queue.get(timeout=60).ack()
        queue.get(timeout=60)
        assert client.llen("queue") == 0
        connection.release()
        assert client.llen("queue") == 1


def test_a_channel_that_waits_for_a_message_closes_at_once_and_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ResilientTransport, "brpop_timeout", 600)
    install()
    with EmbeddedValkey(tmp_path) as address, redis.Redis.from_url(address) as client:
        connection = connect(address)
        queue = connection.SimpleQueue("queue")
        with pytest.raises(Empty):
            queue.get(timeout=0.2)
        until(lambda: client.info("clients")["blocked_clients"] == 1, what="the wait in Redis")
        closing = threading.Thread(target=connection.release, daemon=True)
        closing.start()
        closing.join(60.0)
        assert not closing.is_alive()
        client.lpush("queue", "a message")
        assert client.llen("queue") == 1


def test_prefetching_is_limited_by_unacknowledged_messages(tmp_path: Path) -> None:
    install()
    with EmbeddedValkey(tmp_path) as address, connect(address) as connection:
        queue = connection.SimpleQueue("queue")
        for subject in range(3):
            queue.put({"subject": subject})
        channel = queue.consumer.channel
        channel.basic_qos(prefetch_count=2)
        held = [queue.get(timeout=60), queue.get(timeout=60)]
        assert not channel.qos.can_consume()
        held[0].ack()
        assert channel.qos.can_consume()


def test_a_broken_connection_does_not_put_back_messages_of_running_steps(tmp_path: Path) -> None:
    install()
    with EmbeddedValkey(tmp_path) as address, redis.Redis.from_url(address) as client:
        connection = connect(address)
        queue = connection.SimpleQueue("queue")
        queue.put({"subject": 1})
        message = queue.get(timeout=60)
        message.channel.connection.client = None
        message.channel.qos.restore_unacked()
        assert client.llen("queue") == 0
        connection.transport.client = connection
        connection.release()


def connect(address: str) -> Connection:
    return Connection(configuration({"EVOQ_REDIS_URL": address})["broker_url"])


def began(client: redis.Redis) -> set[int]:
    return {int(subject) for subject in client.lrange("began:generate", 0, -1)}


def done(client: redis.Redis) -> set[int]:
    return {int(subject) for subject in client.lrange("done:generate", 0, -1)}
