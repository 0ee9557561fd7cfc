"""One trial: starts the evaluator's process and its programs', watches them, ends them."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import select
import signal
import socket
import time
import traceback
from typing import Any

from . import cleanup, confine, evaluator_layer, forks, frames, kernel, limits, processes
from .evaluator_handles import KeptEvaluator
from .forks import ForkGate, TaskCount
from .pipes import TrialPipes
from .program_server import ProgramServer
from .sandbox_layout import NESTED
from .trial_files import PreparedProgram, prepare
from .turns import Turns
from .usage import TrialUsage
from .zygote_state import ZygoteState

_POLL_SECONDS = 0.05
_EVALUATOR_END_SECONDS = 5.0
_PASSING_ON_SECONDS = 0.2
_DYING_SECONDS = 1.0
"""How long processes may take to end that are killed at the deadline.  A sandbox in which one is
left then is replaced, and the next trial does not wait for it."""
_STALL_SECONDS = 0.5
_SHOWING_SECONDS = 0.25
"""Between two messages with the moves of a game that goes on."""
_LOOKING_SHARE = 4
"""A look at what a trial holds is followed by a pause at least this many times as long."""


class TrialRun:
    """Runs one trial in a warm sandbox."""

    def __init__(
        self, state: ZygoteState, header: dict[str, Any], sources: list[memoryview]
    ) -> None:
        self._state = state
        self._header = header
        self._bounds: dict[str, Any] = header["limits"]
        files = prepare(state.layout, state.mode, (state.served, state.programs), header, sources)
        state.programs += len(sources)
        self._directory, self._programs = files.directory, files.programs
        self._request = files.request
        self._seeds = _seeds(header, sources)
        self._children: dict[int, int] = {}
        self._waiting: dict[int, socket.socket] = {}
        self._gate: ForkGate | None = None
        self._listener_channels: dict[int, tuple[socket.socket, tuple[str, ...]]] = {}
        self._poll = select.poll()
        self._statuses: list[list[Any]] = []
        self._ended_by_us: set[int] = set()
        self._evaluator_pid = 0
        self._report: dict[str, Any] | None = None
        self._evaluator_lost = False
        self._evaluator_waits = False
        self._dying_until = math.inf
        self._stalled_seconds = 0.0
        self._null = os.open("/dev/null", os.O_RDWR)
        self._game: dict[str, Any] | None = header["game"] if files.turns is not None else None
        self._listeners = {p.listener.fileno(): p for p in self._programs if p.listener is not None}
        self._turns: Turns | None = None
        if files.turns is not None:
            self._turns = Turns(state.layout, files.uids, files.turns)
        self._pipes = TrialPipes(
            state.results, state.streams, len(sources), None if self._turns is None else state.moves
        )
        self._usage = TrialUsage(
            state, header, files, self._turns, self._pipes, self._children, self._tasks
        )
        self._shown, self._show_at = 0, time.monotonic() + _SHOWING_SECONDS

    def run(self) -> None:
        """Runs the trial to its end and sends the report, which lists what could not be removed."""
        state = self._state
        started = time.monotonic()
        self._watch(started + float(self._bounds["wall_seconds"]))
        wall_seconds = time.monotonic() - started
        oom_kills = self._usage.oom_kills()
        left = self._end()
        left += cleanup.clean_files(state.layout, self._directory, self._uids())
        if state.mode == "compatible":
            left += evaluator_layer.restore(state.layout, self._program_uids())
        self._send(wall_seconds, oom_kills, left)
        for stream in state.streams:
            stream.clear()
        state.results.clear()
        state.moves.clear()

    def _watch(self, deadline: float) -> None:
        """Starts the trial's processes and serves them until one bound or the evaluator ends it."""
        self._start_evaluator()
        self._pipes.close_evaluator_writers()
        for index, program in enumerate(self._programs):
            if program.listener is not None:
                self._prepare(index)
        self._register()
        woken, before = time.monotonic(), time.process_time()
        quiet_until = woken + _POLL_SECONDS
        while self._report is None and not self._evaluator_lost and not self._usage.stopped_by:
            now = time.monotonic()
            computed = time.process_time()
            # It never sleeps for a tenth of that; a look at many processes takes longer.
            if (lost := now - woken - (computed - before)) > _STALL_SECONDS:
                self._stalled_seconds += lost
            woken, before = now, computed
            if now >= deadline:
                self._usage.time_out()
                return
            if now >= self._show_at:
                self._show_moves()
                self._show_at = now + _SHOWING_SECONDS
            if now >= quiet_until:
                self._usage.check(deadline)
                checked = time.monotonic()
                quiet_until = checked + max(_POLL_SECONDS, _LOOKING_SHARE * (checked - now))
            wait = min(deadline - now, _POLL_SECONDS)
            if self._gate is not None:
                self._gate.answer()
                wait = min(wait, self._gate.pause_seconds or wait)
            for fd, event in self._poll.poll(wait * 1000 + 0.5):
                self._serve(fd, event)

    def _register(self) -> None:
        """Listens to the worker, to ending children, the evaluator, programs, turns and pipes."""
        state = self._state
        self._poll.register(state.host[0], 0)
        asking = () if self._turns is None else (self._turns.listener.fileno(),)
        channel = state.evaluator_zygote.channel.fileno()
        for fd in (state.wake, channel, *self._pipes.sinks, *self._listeners, *asking):
            self._poll.register(fd, select.POLLIN)

    def _serve(self, fd: int, event: int) -> None:
        """Does what one event asks for."""
        state = self._state
        evaluators = state.evaluator_zygote
        kept, turns = evaluators.kept, self._turns
        if fd == state.host[0]:
            processes.abandon(state.layout, evaluators.pid)
        elif fd == state.wake:
            _drain(fd)
            self._reap()
        elif fd == evaluators.channel.fileno():
            self._receive_from_evaluator(wait=False)
        elif kept is not None and fd == kept.channel.fileno():
            self._receive_from_kept(kept)
        elif fd in self._listener_channels:
            self._take_listener(fd)
        elif self._gate is not None and self._gate.listens(fd):
            self._receive_fork(self._gate, fd, event)
        elif fd in self._listeners:
            self._start_program(self._listeners[fd])
        elif turns is not None and (fd == turns.listener.fileno() or turns.listens(fd)):
            self._serve_turns(turns, fd)
        else:
            if not self._pipes.read(fd):
                self._poll.unregister(fd)
            self._usage.check_output()

    def _show_moves(self) -> None:
        """Sends what the evaluator has written of the moves of its game since the last time."""
        new = self._state.moves.view()[self._shown :]
        if new:
            frames.write_frame(self._state.host[1], {"moves": len(new)}, [new])
            self._shown += len(new)

    def _serve_turns(self, turns: Turns, fd: int) -> None:
        if fd != turns.listener.fileno():
            if not turns.answer(fd, self._children):
                self._poll.unregister(fd)
            self._usage.check_files_of_turns()
        elif (accepted := turns.accept()) is not None:
            self._poll.register(accepted, select.POLLIN)

    def _start_evaluator(self) -> None:
        """Starts the evaluator's process, with a channel for its listener if forks are answered."""
        state, pipes = self._state, self._pipes.evaluator_writers()
        kept = state.evaluator_zygote.kept
        if kept is not None and kept.pid:
            self._usage.ignore_past_of(kept.pid)
        if state.fork_filter is None:
            self._evaluator_pid = state.evaluator_zygote.start(self._request, pipes)
            if state.evaluator_zygote.kept is not None:
                self._poll.register(state.evaluator_zygote.kept.channel, select.POLLIN)
            return
        most = int(self._bounds["processes"])
        of_programs = most * len(self._programs)
        of_all = of_programs + (0 if state.mode == "compatible" else most)
        # Of a game only the player that is to move forks.
        self._gate = ForkGate(self._tasks, of_programs if self._turns is None else most, of_all)
        ours, theirs = socket.socketpair()
        with theirs:
            state.evaluator_zygote.start(self._request, [*pipes, theirs.fileno()])
        shared = state.mode == "compatible"
        self._expect_listener(ours, self._programs[0].confinement.places if shared else ())

    def _tasks(self) -> TaskCount:
        self._reap()
        shared = self._state.mode == "compatible"
        moving = None if self._turns is None else self._turns.moving
        stopped = {pid for pid, seat in self._children.items() if moving not in (None, seat)}
        return processes.tasks(
            self._state.layout, self._state.evaluator_zygote.pid, shared, stopped
        )

    def _expect_listener(self, channel: socket.socket, places: tuple[str, ...]) -> None:
        self._listener_channels[channel.fileno()] = (channel, places)
        self._poll.register(channel, select.POLLIN)

    def _take_listener(self, fd: int) -> None:
        """Begins to answer the forks of a process that has just been confined."""
        assert self._gate is not None
        channel, places = self._listener_channels.pop(fd)
        self._poll.unregister(fd)
        with contextlib.suppress(OSError):
            for listener in socket.recv_fds(channel, 1, 1)[1]:
                self._gate.admit(listener, places)
                self._poll.register(listener, select.POLLIN)
        if channel not in self._waiting.values():
            channel.close()

    def _receive_fork(self, gate: ForkGate, listener: int, event: int) -> None:
        if event & select.POLLIN:
            gate.receive(listener)
        else:
            # Every process under this filter has ended.
            self._poll.unregister(listener)
            gate.forget(listener)

    def _receive_from_evaluator(self, *, wait: bool = True) -> None:
        """Receives the number of the evaluator's process, or how it ended.

        Without `wait`, a report that was there when it was polled for, and that
        `_receive_from_kept` has received since, is not waited for.
        """
        evaluators = self._state.evaluator_zygote
        try:
            message = evaluators.receive(wait=wait)
        except BlockingIOError:
            return
        if message is None:
            self._evaluator_lost = True
        elif "pid" in message:
            self._evaluator_pid = message["pid"]
            if evaluators.kept is not None:
                evaluators.kept.pid = message["pid"]
        elif message["of"] == self._evaluator_pid and self._report is None:
            if evaluators.kept is not None:
                message["cpu"] -= evaluators.kept.cpu_seconds
            self._take_report(message)

    def _receive_from_kept(self, kept: KeptEvaluator) -> None:
        """Receives that the evaluator's process has done this trial and waits for another."""
        message = kept.receive()
        # Without a message the process ends, which the evaluator's zygote reports.
        if message is None:
            self._poll.unregister(kept.channel)
            return
        while not self._evaluator_pid and not self._evaluator_lost:
            self._receive_from_evaluator()
        self._evaluator_waits = True
        self._take_report(message)

    def _take_report(self, report: dict[str, Any]) -> None:
        self._report = report
        ours = self._ended_by(self._evaluator_pid, report["status"])
        self._statuses.append(["evaluator", report["status"], ours])
        self._usage.add(report["cpu"], report["peak_kib"])

    def _start_program(self, program: PreparedProgram) -> None:
        """Hands a new connection of the evaluator to a process of the program."""
        assert program.listener is not None
        try:
            # The descriptor is passed on: `accept` would make a socket of it.
            connection, _ = program.listener._accept()  # type: ignore[attr-defined]
        except BlockingIOError:
            return
        index = self._programs.index(program)
        if index not in self._waiting:
            if len(self._children) >= int(self._bounds["processes"]):
                os.close(connection)
                return
            self._prepare(index)
        channel = self._waiting.pop(index)
        with contextlib.suppress(OSError):
            socket.send_fds(channel, [b"."], [connection])
        os.close(connection)
        if channel.fileno() not in self._listener_channels:
            channel.close()

    def _prepare(self, index: int) -> None:
        """Forks a process of a program, which is confined before its connection is accepted."""
        ours, theirs = socket.socketpair()
        pid = kernel.fork()
        if pid == 0:
            try:
                self._run_program(self._programs[index], theirs)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        theirs.close()
        self._waiting[index] = ours
        self._children[pid] = index
        if self._gate is not None:
            self._expect_listener(ours, self._programs[index].confinement.places)

    def _run_program(self, program: PreparedProgram, channel: socket.socket) -> None:
        state = self._state
        limits.begin_session()
        index = self._programs.index(program)
        limits.take_streams(self._null, *self._pipes.program_writers(index))
        limits.close_all_but(tuple({channel.fileno(), state.layout.ruleset} - {-1}))
        limits.default_signals()
        bounds = self._bounds
        if self._game is not None:
            bounds = {**bounds, "memory_mib": self._game["memory_mib"]}
        confine.confine(
            state.layout, program.confinement, bounds, state.program_filter,
            forks.installation(state.fork_filter, channel),
        )  # fmt: skip
        confine.move_into(program.confinement.directory)
        confine.reseed(self._seeds[index])
        for known in (self._header, self._request, self._seeds):
            # A program can search the memory that its process was forked with.
            known.clear()
        _, fds, _, _ = socket.recv_fds(channel, 1, 1)
        channel.close()
        if fds:
            server = ProgramServer(socket.socket(fileno=fds[0]), program.path, program.folder)
            server.serve()
        os._exit(0)

    def _reap(self) -> None:
        """Takes the status of each process that has ended.

        The kernel's signal for a process that has used its CPU time is the one that `_end` sends.
        """
        limit = limits.whole_cpu_seconds(self._bounds)
        try:
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if not pid:
                    return
                cpu_seconds = usage.ru_utime + usage.ru_stime
                self._usage.add(cpu_seconds, usage.ru_maxrss)
                if pid == self._state.evaluator_zygote.pid:
                    self._evaluator_lost = True
                if pid in self._children:
                    program = self._children.pop(pid)
                    ours = self._ended_by(pid, status) and cpu_seconds < limit
                    self._statuses.append([program, status, ours])
        except ChildProcessError:
            self._evaluator_lost = True

    def _ended_by(self, pid: int, status: int) -> bool:
        """Returns whether the zygote ended a process: one that ended by itself has another status.

        A program's socket closes a moment before its status is there to be had, so the evaluator
        may report, and we may kill, in between.
        """
        return pid in self._ended_by_us and status & 0x7F == signal.SIGKILL

    def _end(self) -> list[str]:
        """Ends every process of the trial and reads its remaining output; returns the survivors."""
        state = self._state
        if self._usage.stopped_by == "timeout":
            self._dying_until = time.monotonic() + _DYING_SECONDS
        if self._gate is not None:
            # From here on no process of the trial forks.
            self._gate.close()
        self._reap()
        for channel in (
            *self._waiting.values(),
            *(channel for channel, _ in self._listener_channels.values()),
        ):
            channel.close()
        if state.layout.identities == NESTED and self._turns is not None:
            self._turns.release(self._children)
        if state.layout.identities == NESTED and self._report is not None:
            # Two processes pass on the exit status of a program before it arrives here.
            self._wait_for_programs(_PASSING_ON_SECONDS)
        for pid in (self._evaluator_pid, *self._children):
            if pid and not (pid == self._evaluator_pid and self._report is not None):
                self._ended_by_us.add(pid)
                processes.kill(pid)
        if self._report is None:
            # All at once: what is left computes beside this process while the report is waited for.
            self._end_all(frozenset((state.evaluator_zygote.pid,)))
        until = time.monotonic() + _EVALUATOR_END_SECONDS
        while self._report is None and not self._evaluator_lost:
            if not select.select(
                [state.evaluator_zygote.channel], [], [], max(0.0, until - time.monotonic())
            )[0]:
                self._evaluator_lost = True
                break
            known = self._evaluator_pid
            self._receive_from_evaluator()
            # A process that has only just been started has to end, too.
            if self._evaluator_pid != known:
                self._ended_by_us.add(self._evaluator_pid)
                processes.kill(self._evaluator_pid)
        self._wait_for_programs(_DYING_SECONDS)
        if not self._evaluator_waits:
            state.evaluator_zygote.end_kept()
        left = [str(pid) for pid in self._end_all(state.evaluator_zygote.pids())]
        self._pipes.finish()
        if self._turns is not None:
            self._turns.close()
        os.close(self._null)
        for program in self._programs:
            if program.listener is not None:
                address = program.listener.getsockname()
                program.listener.close()
                os.unlink(address)
        return left

    def _end_all(self, known: frozenset[int]) -> list[int]:
        """Ends every process of the sandbox but this one and `known`; returns the survivors."""
        uids = self._program_uids()
        return processes.end_all(self._state.layout, known, uids, self._reap, self._dying_until)

    def _wait_for_programs(self, seconds: float) -> None:
        """Waits for ending programs; one that is stuck is left to `processes.end_all`."""
        until = min(time.monotonic() + seconds, self._dying_until)
        while self._children and time.monotonic() < until:
            select.select([self._state.wake], [], [], 0.02)
            _drain(self._state.wake)
            self._reap()

    def _program_uids(self) -> tuple[int, ...]:
        return tuple(sorted({program.confinement.uid for program in self._programs}))

    def _uids(self) -> tuple[int, ...]:
        """Returns every identity that may have left files."""
        if self._state.mode == "guarded":
            return (*self._program_uids(), self._state.layout.first_uid)
        return self._program_uids()

    def _send(self, wall_seconds: float, oom_kills: int, left: list[str]) -> None:
        state = self._state
        blobs = [[state.results.view()], *(stream.views() for stream in self._pipes.streams)]
        report = {
            **self._usage.report(),
            "statuses": self._statuses,
            "wall_seconds": wall_seconds,
            "stalled_seconds": self._stalled_seconds,
            "oom_kills": oom_kills,
            "evaluator_lost": self._evaluator_lost,
            "left": left[:20],
            "sizes": [sum(len(view) for view in views) for views in blobs],
        }
        frames.write_frame(state.host[1], report, [view for views in blobs for view in views])


def _seeds(header: dict[str, Any], sources: list[memoryview]) -> list[int]:
    """Returns the seed of each program's random generators.

    Those of a game's players depend on what none of them knows, the source of the other: a player
    can foretell neither what its opponent draws nor what the referee does.
    """
    seed = header["seed"]
    if not header["game"]:
        return [seed] * len(sources)
    whole = hashlib.sha256(b"".join(sources)).digest()
    return [
        int.from_bytes(hashlib.sha256(b"%d %d " % (seed, seat) + whole).digest()[:4], "big")
        for seat in range(len(sources))
    ]


def _drain(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(fd, 4096)
