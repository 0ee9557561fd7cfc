"""The Celery application: `celery -A app worker -Q gpu`, `… beat`, `… flower` find it here.

Importing this module connects to nothing and reads no environment: the configuration is computed
when Celery first asks for it.
"""
# mypy: disallow-untyped-calls=False

import contextlib
import logging
import os
import ssl
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import click
from celery import Celery, concurrency, signals
from celery.schedules import schedstate, schedule
from celery.utils.nodenames import NODENAME_DEFAULT, nodename, nodesplit
from click.core import ParameterSource
from kombu.entity import Exchange, Queue
from kombu.exceptions import KombuError
from redis import Redis
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError

from app.adapters.queue.address import broker_url, client_url, tls_options
from app.adapters.queue.ticks import IDLE_KEY, handled
from app.adapters.queue.transport import install
from app.config.places import available_cores, places
from app.domain.search.fleets import fleet_name, kind_of
from app.domain.search.shares import NEWCOMERS
from app.logs import filter_secrets, write_json_lines

QUEUES = {
    "generate": "gpu",
    "judge": "gpu",
    "evaluate": "cpu",
    "produce": "control",
    "reap": "control",
    "sweep": "control",
}
"""The queue of each task, which a label may follow: `gpu:llama70b`, `cpu:highmem`."""

CONCURRENCY = {"gpu": 128, "control": 2}
"""Threads that a worker has for its queues of one kind; for `cpu` one a place, and one more."""

GENERATE_CONCURRENCY = "EVOQ_GENERATE_CONCURRENCY"
PRODUCE_SECONDS = 0.5
REAP_SECONDS = 5.0
SWEEP_SECONDS = 60.0
IDLE_SECONDS = 5.0
"""Between two ticks of `produce` where no run is running."""
MOST_WAITING = 300
"""Messages that wait for `control`.  More wait where no worker takes them; the next tick does the
work of those that are removed."""


class WrongEnvironment(click.UsageError, ValueError):
    """A variable that Celery needs is absent or wrong; every command shows it as one line."""


def configuration(environment: Mapping[str, str]) -> dict[str, Any]:
    """Returns the application's settings.

    Delivery is described in `docs/decisions/celery-delivery.md`: a message is acknowledged when its
    step has ended, and `reap` enqueues again what a lost worker leaves undone.

    Raises:
      WrongEnvironment: `EVOQ_REDIS_URL` is not set or no address of a Redis, or another variable
        is wrong.
    """
    # Here, because Celery logs and forgets what a signal raises.
    threads(QUEUES.values(), environment)
    _json_lines(environment)
    broker = _broker(environment)
    return {
        "broker_url": broker,
        "broker_use_ssl": tls_options(broker),
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_transport_options": {
            "socket_timeout": 5,
            "socket_connect_timeout": 3,
            "socket_keepalive": True,
            "health_check_interval": 10,
        },
        "result_backend": None,
        "task_ignore_result": True,
        "task_queues": [Queue(name, Exchange(name), name) for name in sorted(set(QUEUES.values()))],
        "task_default_queue": "control",
        # `name_worker` refuses what is no queue of ours.
        "task_create_missing_queues": True,
        "task_routes": {task: {"queue": queue} for task, queue in QUEUES.items()},
        "task_acks_late": True,
        "worker_prefetch_multiplier": 1,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "task_publish_retry_policy": {
            "max_retries": 2,
            "interval_start": 0,
            "interval_step": 0.2,
            "interval_max": 0.5,
        },
        "task_annotations": {
            task: {"send_events": _boolean(environment, "EVOQ_TASK_EVENTS")}
            for task in ("generate", "judge", "evaluate")
        },
        "beat_scheduler": "celery.beat:Scheduler",
        "beat_schedule": {
            "produce": _tick("produce", PRODUCE_SECONDS),
            "reap": _tick("reap", REAP_SECONDS),
            "sweep": _tick("sweep", SWEEP_SECONDS),
        },
    }


def _tick(task: str, seconds: float) -> dict[str, Any]:
    """Returns a beat entry whose message expires when the one after the next is due."""
    return {"task": task, "schedule": Tick(seconds), "options": {"expires": 2 * seconds}}


class Tick(schedule):  # type: ignore[misc]  # Celery has no types
    """Every so many seconds; without a run half as often, and never within `IDLE_SECONDS`."""

    def is_due(self, last_run_at: datetime) -> Any:
        """Returns whether the tick is due, and the seconds until the next.

        Before a tick that is due, the oldest messages beyond `MOST_WAITING` are removed.
        """
        due, seconds = super().is_due(last_run_at)
        if not due:
            return schedstate(due, seconds)
        # A Redis that cannot be asked is reported by the publication that follows.
        with contextlib.suppress(KombuError, RedisError), _redis(self.app) as client:
            # Redis keeps a tick that has expired until a worker takes it.
            client.ltrim("control", 0, MOST_WAITING - 1)
            if client.exists(IDLE_KEY):
                seconds = max(2 * seconds, IDLE_SECONDS)
        return schedstate(due, seconds)


def refusal(application: Celery) -> str:
    """Returns why the queue's Redis refuses this process; "" where it is right, or away.

    Celery would try to connect for ever.
    """
    transport = application.conf.broker_transport_options
    timeouts = {name: transport[name] for name in ("socket_timeout", "socket_connect_timeout")}
    try:
        with Redis.from_url(client_url(application.conf.broker_url), **timeouts) as client:
            client.ping()
    except (AuthenticationError, NoPermissionError) as error:
        return f"the queue (EVOQ_REDIS_URL) refuses this process: {error}"
    except (RedisError, OSError) as error:
        cause = error.__context__
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"the certificate of the queue (EVOQ_REDIS_URL) is not trusted: "
                f"{cause.verify_message.rstrip('.')}. Name the file of its authority in "
                f"ssl_ca_certs, and the host as its certificate does"
            )
        # Redis may come back, and Celery waits for it.
        pass
    return ""


@signals.beat_init.connect
@signals.worker_init.connect
def _end_if_refused(sender: Any, **_: Any) -> None:
    """Ends a worker, or beat, with one line if the queue's address will not become right."""
    reason = refusal(sender.app)
    if reason:
        raise SystemExit(f"this process cannot work: {reason}")


def report_tick(application: Celery, *, idle: bool) -> None:
    """Shows that planning goes on; if idle, beat ticks more slowly for some seconds."""
    with contextlib.suppress(KombuError, RedisError), _redis(application) as client:
        handled(client, idle=idle)


@contextlib.contextmanager
def _redis(application: Celery) -> Iterator[Any]:
    """Yields a client of the queue's Redis."""
    with (
        application.pool.acquire(block=True) as connection,
        connection.default_channel.conn_or_acquire() as client,
    ):
        yield client


def _broker(environment: Mapping[str, str]) -> str:
    address = environment.get("EVOQ_REDIS_URL")
    if not address:
        raise WrongEnvironment(
            "EVOQ_REDIS_URL is not set: give the queue's address, as redis://host:6379/0"
        )
    try:
        return broker_url(address)
    except ValueError as error:
        raise WrongEnvironment(f"EVOQ_REDIS_URL: {error}") from error


def _boolean(environment: Mapping[str, str], variable: str) -> bool:
    text = environment.get(variable, "false")
    if text.lower() not in ("true", "false", "1", "0"):
        raise WrongEnvironment(f"{variable} must be true or false, not {text!r}")
    return text.lower() in ("true", "1")


def threads(queues: Iterable[str], environment: Mapping[str, str]) -> int:
    """Returns the number of tasks that a worker of these queues runs at once.

    Queues that differ in their labels have their threads together.

    Raises:
      WrongEnvironment: A variable of a queue is not a positive number.
    """
    return sum(_threads(kind, environment) for kind in {kind_of(queue) for queue in queues})


def _threads(queue: str, environment: Mapping[str, str]) -> int:
    if queue == "cpu":
        try:
            return places(environment, available_cores()) + NEWCOMERS
        except ValueError as error:
            raise WrongEnvironment(str(error)) from error
    text = environment.get(GENERATE_CONCURRENCY) if queue == "gpu" else None
    if not text:
        return CONCURRENCY[queue]
    if not text.isdecimal() or int(text) < 1:
        raise WrongEnvironment(
            f"{GENERATE_CONCURRENCY} must be a number of threads, 1 or more, not {text!r}"
        )
    return int(text)


def shape_worker(sender: Any, **_: Any) -> None:
    """Sets the pool and concurrency of a worker by its queues, unless its command line does."""
    command = click.get_current_context(silent=True)
    if command is None:
        return
    if command.get_parameter_source("pool") is ParameterSource.DEFAULT:
        sender.pool_cls = concurrency.get_implementation("threads")
    if command.get_parameter_source("concurrency") is ParameterSource.DEFAULT:
        sender.concurrency = threads(sender.app.amqp.queues.consume_from, os.environ)
    # The number of places that the worker reports is read from here.
    sender.app.conf.worker_concurrency = sender.concurrency


def name_worker(instance: Any, options: Mapping[str, Any], **_: Any) -> None:
    """Names a worker after its queues, so that two on one host differ without `-n`.

    Raises:
      SystemExit: It is to serve a queue that no step is sent to.
    """
    name, host = nodesplit(instance.hostname)
    queues = options.get("queues")
    names = queues.split(",") if isinstance(queues, str) else list(queues or ())
    try:
        for queue in set(names) - set(QUEUES.values()):
            fleet_name(queue)
    except ValueError as error:
        # Celery logs and forgets any other exception of a signal.
        raise SystemExit(f"this worker cannot work: -Q {','.join(names)}: {error}") from error
    if name == NODENAME_DEFAULT and names:
        instance.hostname = nodename("-".join(names).replace(":", "."), host)


def _shape_logs(logger: logging.Logger, **_: Any) -> None:
    """Keeps secrets out of the logs of workers and beat, once Celery has configured logging."""
    filter_secrets()
    if _json_lines(os.environ):
        write_json_lines(logger)


def _json_lines(environment: Mapping[str, str]) -> bool:
    form = environment.get("EVOQ_LOG_FORMAT", "text")
    if form not in ("text", "json"):
        raise WrongEnvironment(f"EVOQ_LOG_FORMAT must be text or json, not {form!r}")
    return form == "json"


def modules() -> list[str]:
    """Returns the modules that the running command imports: tasks and hooks.

    `beat` and `flower` import no tasks, because they never run a step: the engine with its
    libraries would cost each of them seconds of start-up and dozens of megabytes.
    """
    command = click.get_current_context(silent=True)
    if command is not None and command.info_name in ("beat", "flower"):
        return ["workers.heartbeat"]
    return ["workers.tasks", "workers.lifecycle", "workers.heartbeat"]


def _application() -> Celery:
    install()
    signals.after_setup_logger.connect(_shape_logs)
    signals.after_setup_task_logger.connect(_shape_logs)
    signals.celeryd_init.connect(name_worker)
    signals.worker_init.connect(shape_worker)
    application = Celery("evoqueue")
    application.add_defaults(lambda: {**configuration(os.environ), "include": modules()})
    return application


def client(redis_url: str) -> Celery:
    """Returns an application that only publishes, to a queue given by its address.

    Raises:
      WrongEnvironment: The address is none of a Redis.
    """
    install()
    application = Celery("evoqueue", set_as_current=False)
    application.conf.update(configuration({"EVOQ_REDIS_URL": redis_url}))
    return application


app = _application()
