"""Group commit: threads that want the same transaction at the same time share one."""

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

Subject = TypeVar("Subject")
Result = TypeVar("Result")

MOST = 32
"""Subjects of one transaction: whoever waits for its locks waits for all of them."""


@dataclass(slots=True, eq=False)
class _Member:
    """A thread that takes part.

    Attributes:
      turn: Set when it need wait no longer: its group is `done`, or it leads `group`, or neither,
        and it is on its own.
    """

    subjects: Sequence[Any]
    turn: threading.Event = field(default_factory=threading.Event)
    group: "list[_Member]" = field(default_factory=list)
    done: bool = False
    result: Any = None


class GroupCommit:
    """Runs transactions of a kind one after the other, each for all who came meanwhile.

    Whoever finds nobody at work goes first, at once and alone; those who come while it works are
    the next group, which the first of them leads.  So nobody is held back for company, and the
    busier a process is, the fewer its transactions.

    Source: DeWitt et al., Implementation Techniques for Main Memory Database Systems (1984), § 5.2;
    without its timer.
    """

    def __init__(self, most: int = MOST) -> None:
        """Begins idle.

        Args:
          most: Subjects of one transaction, but for a member that brings more by itself.
        """
        self._most = most
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, deque[_Member]] = {}

    def share(
        self,
        kind: Hashable,
        subjects: Sequence[Subject],
        work: Callable[[Sequence[Subject]], Result],
        /,
    ) -> Result:
        """See `app.engine.sharing.Share`.

        An error is that of whoever led its group; every other member is on its own then, so that
        one subject's fault is met by the one who brought it.
        """
        me = _Member(subjects)
        if self._queued(kind, me):
            me.turn.wait()
        else:
            me.group = [me]
        if me.done:
            found: Result = me.result
            return found
        if not me.group:
            return work(subjects)
        return self._lead(kind, me.group, work)

    def _queued(self, kind: Hashable, me: _Member) -> bool:
        """Returns whether somebody is at work, for whom `me` now waits."""
        with self._lock:
            queue = self._waiting.get(kind)
            if queue is None:
                self._waiting[kind] = deque()
                return False
            queue.append(me)
            return True

    def _lead(
        self, kind: Hashable, group: list[_Member], work: Callable[[Sequence[Any]], Result]
    ) -> Result:
        try:
            result = work([subject for member in group for subject in member.subjects])
            for member in group:
                member.result, member.done = result, True
            return result
        finally:
            for member in group:
                member.turn.set()
            self._pass_on(kind)

    def _pass_on(self, kind: Hashable) -> None:
        """Has the first of those who came meanwhile lead the next group."""
        with self._lock:
            queue = self._waiting[kind]
            if not queue:
                del self._waiting[kind]
                return
            first = queue.popleft()
            first.group, subjects = [first], len(first.subjects)
            while queue and subjects + len(queue[0].subjects) <= self._most:
                subjects += len(queue[0].subjects)
                first.group.append(queue.popleft())
        first.turn.set()
