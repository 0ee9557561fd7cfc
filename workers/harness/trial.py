"""One trial: starts the evaluator's process and its programs', watches them, ends them."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
import traceback
from typing import Any

from . import census, confine, frames, limits, sweep
from .forks import Gate, Tasks
from .outlets import Outlets
from .player import Player
from .room import NESTED
from .seating import Seated, seat
from .warm import Cell

_POLL_SECONDS = 0.05
_LOADER_PATIENCE_SECONDS = 5.0
_PASSING_ON_SECONDS = 0.2
_DYING_SECONDS = 1.0
_KIB = 1024


class Trial:
    """The life of one trial in a cell."""

    def __init__(self, cell: Cell, header: dict[str, Any], sources: list[memoryview]) -> None:
        self._cell = cell
        self._header = header
        self._bounds: dict[str, Any] = header["limits"]
        seating = seat(cell.room, cell.mode, (cell.served, cell.programs), header, sources)
        cell.programs += len(sources)
        self._directory, self._players = seating.directory, seating.players
        self._request = seating.request
        self._children: dict[int, int] = {}
        self._waiting: dict[int, socket.socket] = {}
        self._gate: Gate | None = None
        self._lines: dict[int, tuple[socket.socket, bool]] = {}
        self._poll = select.poll()
        self._statuses: list[list[Any]] = []
        self._ended_by_us: set[int] = set()
        self._evaluator_pid = 0
        self._report: dict[str, Any] | None = None
        self._loader_lost = False
        self._oom_before = 0
        self._stopped_by = ""
        self._cpu_seconds = 0.0
        self._peak_kib = 0
        self._null = os.open("/dev/null", os.O_RDWR)
        self._outlets = Outlets(cell.results, cell.streams)

    # Its life.

    def run(self) -> None:
        """Runs the trial to its end and sends the report; the cell is clean or says it is not."""
        cell = self._cell
        self._oom_before = census.oom_kills(cell.room)
        started = time.monotonic()
        self._watch(started + float(self._bounds["wall_seconds"]))
        wall_seconds = time.monotonic() - started
        oom_kills = census.oom_kills(cell.room) - self._oom_before
        left = self._end()
        left += sweep.clean_files(cell.room, self._directory, self._uids())
        self._send(wall_seconds, oom_kills, left)
        for stream in cell.streams:
            stream.clear()
        cell.results.clear()

    def _watch(self, deadline: float) -> None:
        cell = self._cell
        poll = self._poll
        self._start_evaluator()
        self._outlets.close_evaluators()
        for index, player in enumerate(self._players):
            if player.listener is not None:
                self._prepare(index)
        poll.register(cell.host[0], 0)
        poll.register(cell.wake, select.POLLIN)
        poll.register(cell.loader.channel, select.POLLIN)
        listeners = {p.listener.fileno(): p for p in self._players if p.listener is not None}
        for fd in (*self._outlets.sinks, *listeners):
            poll.register(fd, select.POLLIN)
        quiet_until = time.monotonic() + _POLL_SECONDS
        while self._report is None and not self._loader_lost and not self._stopped_by:
            now = time.monotonic()
            if now >= deadline:
                self._stopped_by = "timeout"
                return
            if now >= quiet_until:
                self._weigh()
                quiet_until = now + _POLL_SECONDS
            wait = min(deadline - now, _POLL_SECONDS)
            if self._gate is not None:
                self._gate.answer()
                wait = min(wait, self._gate.pause_seconds or wait)
            for fd, event in poll.poll(wait * 1000 + 0.5):
                if fd == cell.host[0]:
                    census.abandon(cell.room, cell.loader.pid)
                elif fd == cell.wake:
                    _drain(fd)
                    self._reap()
                elif fd == cell.loader.channel.fileno():
                    self._hear_loader()
                elif fd in self._lines:
                    self._take_listener(fd)
                elif self._gate is not None and self._gate.listens(fd):
                    self._hear_fork(self._gate, fd, event)
                elif fd in listeners:
                    self._start_program(listeners[fd])
                else:
                    if not self._outlets.read(fd):
                        poll.unregister(fd)
                    if self._outlets.overflowing(self._bounds["output_bytes"]):
                        self._stopped_by = "output_limit"

    def _start_evaluator(self) -> None:
        """Starts the evaluator's process; where forks ask, with a line for its listener."""
        cell, outlets = self._cell, self._outlets.of_evaluator()
        if cell.asking is None:
            cell.loader.start(self._request, outlets)
            return
        most = int(self._bounds["processes"])
        of_programs = most * len(self._players)
        of_everybody = of_programs + (0 if cell.mode == "compatible" else most)
        self._gate = Gate(self._tasks, of_programs, of_everybody)
        ours, theirs = socket.socketpair()
        with theirs:
            cell.loader.start(self._request, [*outlets, theirs.fileno()])
        self._expect_listener(ours, evaluator=cell.mode != "compatible")

    def _tasks(self) -> Tasks:
        self._reap()
        shared = self._cell.mode == "compatible"
        return census.tasks(self._cell.room, self._cell.loader.pid, shared)

    def _expect_listener(self, line: socket.socket, *, evaluator: bool) -> None:
        self._lines[line.fileno()] = (line, evaluator)
        self._poll.register(line, select.POLLIN)

    def _take_listener(self, fd: int) -> None:
        """Begins to answer the forks of a process that has just been confined."""
        assert self._gate is not None
        line, evaluator = self._lines.pop(fd)
        self._poll.unregister(fd)
        with contextlib.suppress(OSError):
            for listener in socket.recv_fds(line, 1, 1)[1]:
                self._gate.admit(listener, evaluator=evaluator)
                self._poll.register(listener, select.POLLIN)
        if line not in self._waiting.values():
            line.close()

    def _hear_fork(self, gate: Gate, listener: int, event: int) -> None:
        if event & select.POLLIN:
            gate.hear(listener)
        else:  # every process under this filter has ended
            self._poll.unregister(listener)
            gate.forget(listener)

    def _hear_loader(self) -> None:
        message = self._cell.loader.receive()
        if message is None:
            self._loader_lost = True
        elif "pid" in message:
            self._evaluator_pid = message["pid"]
        else:
            self._report = message
            ours = self._ended_by(self._evaluator_pid, message["status"])
            self._statuses.append(["evaluator", message["status"], ours])
            self._cpu_seconds += message["cpu"]
            self._peak_kib = max(self._peak_kib, message["peak_kib"])

    def _start_program(self, player: Seated) -> None:
        """Hands a new connection of the evaluator to a process of the program."""
        assert player.listener is not None
        try:
            connection, _ = player.listener.accept()
        except BlockingIOError:
            return
        index = self._players.index(player)
        if index not in self._waiting:
            if len(self._children) >= int(self._bounds["processes"]):
                connection.close()
                return
            self._prepare(index)
        line = self._waiting.pop(index)
        with connection, contextlib.suppress(OSError):
            socket.send_fds(line, [b"."], [connection.fileno()])
        if line.fileno() not in self._lines:
            line.close()

    def _prepare(self, index: int) -> None:
        """Forks a process for a player that is confined already when its connection comes."""
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            try:
                self._become(self._players[index], theirs)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        theirs.close()
        self._waiting[index] = ours
        self._children[pid] = index
        if self._gate is not None:
            self._expect_listener(ours, evaluator=False)

    def _become(self, player: Seated, line: socket.socket) -> None:
        cell = self._cell
        limits.take_streams(self._null, *self._outlets.of_programs())
        limits.close_all_but((line.fileno(),))
        limits.default_signals()
        limits.set_environment(confine.program_environment(player.seat.directory))
        confine.confine(cell.room, player.seat, self._bounds, cell.sieve)
        if cell.asking is not None:
            cell.asking.install_for(line)
        confine.reseed(self._header["seed"])
        _, fds, _, _ = socket.recv_fds(line, 1, 1)
        line.close()
        if fds:
            Player(socket.socket(fileno=fds[0]), player.path).serve()
        os._exit(0)

    def _weigh(self) -> None:
        """Ends a trial that wants too much at once: a full cgroup slows down the zygote, too."""
        cell = self._cell
        if cell.room.counted_memory:
            if census.oom_kills(cell.room) > self._oom_before:
                self._stopped_by = "memory"
            return
        alive = census.strangers(cell.room, frozenset((cell.loader.pid,)))
        held = census.resident_bytes(alive, cell.baseline_bytes)
        if held > (int(self._bounds["memory_mib"]) << 20):
            self._stopped_by = "memory"
        self._peak_kib = max(self._peak_kib, held // _KIB)

    # Its end.

    def _reap(self) -> None:
        try:
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if not pid:
                    return
                self._cpu_seconds += usage.ru_utime + usage.ru_stime
                self._peak_kib = max(self._peak_kib, usage.ru_maxrss)
                if pid == self._cell.loader.pid:
                    self._loader_lost = True
                if pid in self._children:
                    player = self._children.pop(pid)
                    self._statuses.append([player, status, self._ended_by(pid, status)])
        except ChildProcessError:
            self._loader_lost = True

    def _ended_by(self, pid: int, status: int) -> bool:
        """Returns whether an end is our doing; who was dying already died of what its status says.

        A program's socket closes a moment before its status is there to be had, so the evaluator
        may report, and we may kill, in between.
        """
        return pid in self._ended_by_us and status & 0x7F == signal.SIGKILL

    def _end(self) -> list[str]:
        """Ends every process of the trial and reads what they still left; returns who stayed."""
        cell = self._cell
        if self._gate is not None:
            self._gate.close()  # from here on nothing of the trial forks
        self._reap()
        for line in (*self._waiting.values(), *(line for line, _ in self._lines.values())):
            line.close()
        if cell.room.identities == NESTED and self._report is not None:
            # How a program ended is passed on by two processes before it is ours to see.
            self._wait_for_programs(_PASSING_ON_SECONDS)
        for pid in (self._evaluator_pid, *self._children):
            if pid and not (pid == self._evaluator_pid and self._report is not None):
                self._ended_by_us.add(pid)
                census.kill(pid)
        until = time.monotonic() + _LOADER_PATIENCE_SECONDS
        while self._report is None and not self._loader_lost:
            if not select.select([cell.loader.channel], [], [], max(0.0, until - time.monotonic()))[
                0
            ]:
                self._loader_lost = True
                break
            known = self._evaluator_pid
            self._hear_loader()
            if self._evaluator_pid != known:  # it had only just been started
                self._ended_by_us.add(self._evaluator_pid)
                census.kill(self._evaluator_pid)
        self._wait_for_programs(_DYING_SECONDS)
        known_pids = frozenset((cell.loader.pid,))
        left = [
            str(pid)
            for pid in census.end_all(cell.room, known_pids, self._program_uids(), self._reap)
        ]
        self._outlets.finish()
        os.close(self._null)
        for player in self._players:
            if player.listener is not None:
                address = player.listener.getsockname()
                player.listener.close()
                os.unlink(address)
        return left

    def _wait_for_programs(self, seconds: float) -> None:
        """Collects programs that are ending; one that is stuck is left to the census."""
        until = time.monotonic() + seconds
        while self._children and time.monotonic() < until:
            select.select([self._cell.wake], [], [], 0.02)
            _drain(self._cell.wake)
            self._reap()

    def _program_uids(self) -> tuple[int, ...]:
        return tuple(sorted({player.seat.uid for player in self._players}))

    def _uids(self) -> tuple[int, ...]:
        """Returns every identity that may have left files."""
        if self._cell.mode == "guarded":
            return (*self._program_uids(), self._cell.room.first_uid)
        return self._program_uids()

    def _send(self, wall_seconds: float, oom_kills: int, left: list[str]) -> None:
        cell = self._cell
        blobs = [[cell.results.view()], *(stream.views() for stream in cell.streams)]
        report = {
            "stopped_by": self._stopped_by,
            "statuses": self._statuses,
            "wall_seconds": wall_seconds,
            "cpu_seconds": self._cpu_seconds,
            "peak_kib": self._peak_kib,
            "oom_kills": oom_kills,
            "loader_lost": self._loader_lost,
            "left": left[:20],
            "sizes": [sum(len(view) for view in views) for views in blobs],
        }
        frames.write_frame(cell.host[1], report, [view for views in blobs for view in views])


def _drain(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(fd, 4096)
