"""Group commit: threads that need the same kind of transaction at the same time share one."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

Subject = TypeVar("Subject")
Result = TypeVar("Result")

log = logging.getLogger(__name__)

MOST = 32
"""Subjects of one transaction; a waiter for its locks waits for the work on all of them."""


def _nothing(results: Sequence[object]) -> None: ...


@dataclass(slots=True, eq=False)
class _Member:
    """A thread that takes part.

    Attributes:
      turn: Set when it stops waiting: it is served, or leads the next group, or continues alone.
      leads: The other members of the group it leads; None where it does not lead.
      served: Whether a group's transaction has served it.
      results: One for each of its subjects, if it is served.
    """

    subjects: Sequence[Any]
    turn: threading.Event = field(default_factory=threading.Event)
    leads: "list[_Member] | None" = None
    served: bool = False
    results: list[Any] = field(default_factory=list)


class GroupCommit:
    """Runs transactions of a kind one after the other, each for all threads that wait for it.

    A thread that finds no transaction of its kind running starts one at once, alone.  Threads that
    arrive while it runs form the next group, which the first of them leads.  So no thread is
    delayed to fill a group, and the busier a process is, the fewer transactions it runs.

    Source: DeWitt et al., Implementation Techniques for Main Memory Database Systems (1984), § 5.2;
    without its timer.
    """

    def __init__(self, most: int = MOST) -> None:
        """Creates an idle group commit.

        Args:
          most: Subjects of one transaction; a single member may bring more.
        """
        self._most = most
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, deque[_Member]] = {}

    def share(
        self,
        kind: Hashable,
        subjects: Sequence[Subject],
        work: Callable[[Sequence[Subject]], Sequence[Result]],
        after: Callable[[Sequence[Result]], None] = _nothing,
        /,
    ) -> list[Result]:
        """See `app.engine.process.Process.share`.

        Where a group's transaction fails, every member tries on its own, its leader too: a
        fault of a subject is raised in its own thread, and the others lose nothing by it.
        """
        me = _Member(subjects)
        if self._queued(kind, me):
            me.turn.wait()
        if me.leads is not None:
            self._lead(kind, me, me.leads, work, after)
        if not me.served:
            me.results = list(work(subjects))
            after(me.results)
        return me.results

    def _queued(self, kind: Hashable, me: _Member) -> bool:
        """Returns whether another thread is at work, for which `me` waits; else `me` leads."""
        with self._lock:
            queue = self._waiting.get(kind)
            if queue is None:
                self._waiting[kind] = deque()
                me.leads = []
                return False
            queue.append(me)
            return True

    def _lead(
        self,
        kind: Hashable,
        me: _Member,
        others: Sequence[_Member],
        work: Callable[[Sequence[Any]], Sequence[Any]],
        after: Callable[[Sequence[Any]], None],
    ) -> None:
        """Serves the group, unless its transaction fails; then the next group begins.

        Raises:
          BaseException: What `work` raised, where the group is its leader alone.
        """
        group = [me, *others]
        try:
            results = list(work([subject for member in group for subject in member.subjects]))
            left = iter(results)
            for member in group:
                member.results, member.served = list(islice(left, len(member.subjects))), True
        except Exception as error:
            if not others:
                raise
            log.warning("%s for %d threads failed, each tries alone: %s", kind, len(group), error)
        finally:
            for member in others:
                member.turn.set()
            self._pass_on(kind)
        if me.served:
            after(results)

    def _pass_on(self, kind: Hashable) -> None:
        """Has the first of those who came meanwhile lead the next group."""
        with self._lock:
            queue = self._waiting[kind]
            if not queue:
                del self._waiting[kind]
                return
            first = queue.popleft()
            first.leads, subjects = [], len(first.subjects)
            while queue and subjects + len(queue[0].subjects) <= self._most:
                subjects += len(queue[0].subjects)
                first.leads.append(queue.popleft())
        first.turn.set()
