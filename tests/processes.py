"""Runs the tests in several processes, which are forked once all tests are collected.

A process that collects for itself spends 8 s of a processor on it before its first test, and what
distributes the tests has to compare what each has found.
"""

import multiprocessing
import os
import struct
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

DEPLOYMENT = "deployment"
"""The group of the tests that share the Compose project."""

ATTACKS = "tests/integration/test_sandbox_attacks.py"
"""The module whose classes are long, and share nothing."""
EARLY = ("tests/unit/", "tests/engine/")
"""Folders of the tests that need no more than the environment."""
PREPARED = "EVOQ_TEST_PREPARED"
"""Variable with the name of a file.  Until it is there, a Docker engine and its images are being
prepared, and only groups of `EARLY` begin; afterwards those that are left of these come last."""
LONG = (DEPLOYMENT, ATTACKS, "test_sandbox_", "test_embedded_", "test_cli_")
"""Parts of the names of groups that take longest: they begin first, so that no process idles."""

_NUMBER = struct.Struct("=H")


def group(nodeid: str) -> str:
    """Returns the group of a test: its module, so that the fixtures of a module are built once.

    A class of `ATTACKS` is a group of its own; the tests of the deployment share one.
    """
    path, _, rest = nodeid.partition("::")
    if path.startswith("tests/e2e"):
        return DEPLOYMENT
    name = rest.partition("::")[0]
    return f"{path}::{name}" if path == ATTACKS else path


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `-n`; pytest keeps short options in lower case for itself and its plug-ins."""
    parser.getgroup("processes")._addoption(
        "-n",
        dest="processes",
        type=int,
        default=0,
        metavar="N",
        help="run groups of tests in N processes, forked once all are collected; 0: in this one",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begins with the groups that take longest, so that no process idles at the end."""
    items.sort(key=lambda item: _weight(group(item.nodeid)))


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Runs the tests in the processes that `-n` asks for; None leaves them to pytest."""
    option = session.config.option
    number = min(option.processes, len(_groups(session.items, range(len(session.items)))))
    if number < 2 or option.collectonly or option.usepdb or session.testsfailed:
        return None
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        reporter.showfspath = False
    left = list(range(len(session.items)))
    while left:
        run = _Run(session, left, number)
        finished = run.whole()
        if not finished:
            raise RuntimeError("processes end before they have run a test; run with -n 0")
        left = [index for index in left if index not in finished]
    return True


class _Run:
    """The processes that run some tests, each one group after the other.

    A process that dies fails the test that it ran; those that it had yet to run are not finished.
    """

    def __init__(self, session: pytest.Session, indices: Sequence[int], number: int) -> None:
        """Starts the processes.

        Args:
          session: What has collected.
          indices: Of the tests in `session.items`.
          number: At most so many processes.
        """
        self._session = session
        self._finished: set[int] = set()
        self._running: dict[Connection, int] = {}
        self._processes: dict[Connection, ForkProcess] = {}
        groups = _groups(session.items, indices)
        early = [session.items[first].nodeid.startswith(EARLY) for first, *_ in groups]
        queues = [_queue(n for n, it in enumerate(early) if it is which) for which in (False, True)]
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        context = multiprocessing.get_context("fork")
        for n in range(min(number, len(groups))):
            reader, writer = context.Pipe(duplex=False)
            unused = [*self._processes, reader]
            process = context.Process(
                target=_work, args=(session, groups, queues, writer, unused, f"gw{n}")
            )
            process.start()
            writer.close()
            self._processes[reader] = process
        for queue in queues:
            os.close(queue)

    def whole(self) -> set[int]:
        """Returns the indices of the tests that were run, once all processes have ended."""
        try:
            while self._processes:
                for reader in wait(list(self._processes), timeout=1):
                    assert isinstance(reader, Connection)
                    self._read(reader)
                for reader, process in list(self._processes.items()):
                    if process.exitcode is not None:
                        while self._read(reader):
                            pass
                        self._ended(reader)
        finally:
            # Where tests stop early, a process ends when it can report no more.
            for reader, process in self._processes.items():
                reader.close()
                process.join()
        return self._finished

    def _read(self, reader: Connection) -> bool:
        """Reports one message of a process; returns whether there was one."""
        try:
            if not reader.poll():
                return False
            kind, *values = reader.recv()
        except EOFError:
            return False
        config, hook = self._session.config, self._session.config.hook
        if kind == "begin":
            (index,) = values
            self._running[reader] = index
            item = self._session.items[index]
            hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        elif kind == "warning":
            text, category, path, line, when, nodeid = values
            message = warnings.WarningMessage(category(text), category, path, line)
            hook.pytest_warning_recorded.call_historic(
                kwargs={
                    "warning_message": message,
                    "when": when,
                    "nodeid": nodeid,
                    "location": None,
                }
            )
        else:
            index, reports = values
            del self._running[reader]
            self._report(
                index,
                [
                    hook.pytest_report_from_serializable(config=config, data=data)
                    for data in reports
                ],
            )
        return True

    def _report(self, index: int, reports: list[pytest.TestReport]) -> None:
        """Reports that a test was run.

        Raises:
          pytest.Session.Failed: The tests are to stop at this failure.
        """
        item, hook = self._session.items[index], self._session.config.hook
        for report in reports:
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        self._finished.add(index)
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)

    def _ended(self, reader: Connection) -> None:
        """Forgets a process that has ended, and fails the test that it ran."""
        process = self._processes.pop(reader)
        reader.close()
        index = self._running.pop(reader, None)
        if index is None:
            return
        item = self._session.items[index]
        text = f"the process that ran this test ended with exit code {process.exitcode}"
        self._report(
            index,
            [pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")],
        )


class _Sender:
    """Sends to the first process what the tests of this one come to."""

    def __init__(self, writer: Connection, session: pytest.Session) -> None:
        self._writer = writer
        self._indices = {item.nodeid: index for index, item in enumerate(session.items)}
        self._running = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        index = self._indices[item.nodeid]
        self._writer.send(("begin", index))
        self._running = True
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        hook = item.config.hook
        self._writer.send(
            (
                "end",
                index,
                [hook.pytest_report_to_serializable(config=item.config, report=r) for r in reports],
            )
        )
        return True

    @pytest.hookimpl
    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str
    ) -> None:
        if not self._running:  # pytest repeats those of the collection for each new plug-in
            return
        w = warning_message
        self._writer.send(
            ("warning", str(w.message), w.category, w.filename, w.lineno, when, nodeid)
        )


def _work(
    session: pytest.Session,
    groups: Sequence[Sequence[int]],
    queues: Sequence[int],
    writer: Connection,
    unused: Sequence[Connection],
    name: str,
) -> None:
    """Runs groups of tests in this process, as long as there are any."""
    config: Any = session.config
    for connection in unused:  # so that this process sees when the first is no more
        connection.close()
    # What captures output writes to files whose position the first process would share.
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    factory = config._tmp_path_factory
    factory._basetemp = factory.getbasetemp() / name
    factory._basetemp.mkdir(mode=0o700, exist_ok=True)
    config.pluginmanager.register(_Sender(writer, session))
    with suppress(BrokenPipeError, KeyboardInterrupt):  # of the first process, and of all
        items = (session.items[index] for index in _taken(groups, *queues))
        item = next(items, None)
        while item is not None:
            following = next(items, None)
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            item = following
    session._setupstate.teardown_exact(None)
    capture.stop_global_capturing()


def _queue(numbers: Iterable[int]) -> int:
    """Returns a pipe from which each process reads the number of its next group."""
    queue, end = os.pipe()
    os.write(end, b"".join(_NUMBER.pack(number) for number in numbers))
    os.close(end)
    return queue


def _taken(groups: Sequence[Sequence[int]], others: int, early: int) -> Iterator[int]:
    """Yields the indices of tests, of one group after the other; see `PREPARED`."""
    path = os.environ.get(PREPARED)
    while True:
        prepared = path is None or os.path.exists(path)
        number = os.read(others, _NUMBER.size) if prepared else b""
        number = number or os.read(early, _NUMBER.size)
        if number:
            yield from groups[_NUMBER.unpack(number)[0]]
        elif prepared:
            return
        else:
            time.sleep(0.2)


def _groups(items: Sequence[pytest.Item], indices: Sequence[int]) -> list[list[int]]:
    groups: dict[str, list[int]] = {}
    for index in indices:
        groups.setdefault(group(items[index].nodeid), []).append(index)
    return list(groups.values())


def _weight(group: str) -> int:
    return next((n for n, part in enumerate(LONG) if part in group), len(LONG))
