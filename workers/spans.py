"""Spans of OpenTelemetry: all that workers do for a proposal is one trace.

Imported only where an exporter is set; `pip install 'evoqueue[otel]'` brings the library.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision

from app.domain.run import Run
from app.domain.search.cohort import ProposalId, TrialId
from app.domain.secrets import redacted
from app.engine.tracing import Attribute, Note
from app.ports.proposals import TracedProposal
from app.ports.protocols import Stopped, Store, Unavailable

_ABOVE: ContextVar[Mapping[ProposalId, trace.Span]] = ContextVar("evoq_spans")
"""The innermost span of each proposal that the present thread works for."""

END_SECONDS = 3.0
"""The most that the end of a worker waits for a collector."""

_SAMPLED = trace.TraceFlags(trace.TraceFlags.SAMPLED)


class FirstIds(RandomIdGenerator):
    """Random ids, but for the first span of a trace: every worker computes the same for it."""

    def __init__(self) -> None:
        """Has random ids only."""
        self._first = threading.local()

    @contextmanager
    def of(self, root: trace.SpanContext) -> Iterator[None]:
        """Gives a span that this thread starts in the block, without a parent, these ids."""
        self._first.ids = root.span_id, root.trace_id
        try:
            yield
        finally:
            self._first.ids = None

    def _given(self) -> tuple[int, int] | None:
        ids: tuple[int, int] | None = self._first.__dict__.get("ids")
        return ids

    def generate_span_id(self) -> int:
        """Returns the id of a span."""
        given = self._given()
        return given[0] if given else super().generate_span_id()

    def generate_trace_id(self) -> int:
        """Returns the id of a trace."""
        given = self._given()
        return given[1] if given else super().generate_trace_id()

    def is_trace_id_random(self) -> bool:
        """Ids of traces are digests."""
        return False


def root_of(run: str, proposal: TracedProposal) -> trace.SpanContext:
    """Returns the ids of a proposal's trace and of its first span.

    They are a digest of the run, the proposal and the moment of its planning, so that workers need
    no message to agree on them, and ledgers that count alike do not share a trace.
    """
    named = f"evoqueue/{run}/{proposal.id}/{proposal.planned_us}"
    digest = hashlib.sha256(named.encode()).digest()
    ids = int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:24], "big")
    return trace.SpanContext(*ids, is_remote=True, trace_flags=_SAMPLED)


class Spans:
    """See `app.engine.tracing.Tracing`; a span is written for each proposal that it is about."""

    def __init__(self, provider: TracerProvider, ids: FirstIds, store: Store) -> None:
        """Writes to what a provider exports to.

        Args:
          provider: Has `ids`.
          ids: Those of its spans.
          store: The ledger, which knows the proposals of trials.
        """
        self._provider = provider
        self._ids = ids
        self._store = store
        self._tracer = provider.get_tracer("evoqueue")

    @contextmanager
    def span(
        self,
        name: str,
        run: Run,
        *,
        proposals: Sequence[ProposalId] = (),
        trials: Sequence[TrialId] = (),
        **attributes: Attribute | None,
    ) -> Iterator[Note]:
        """See `app.engine.tracing.Tracing.span`."""
        parents = self._parents(run, proposals, trials)
        about = {"trial": trials[0]} if len(trials) == 1 else {}
        spans = {
            proposal: self._start(name, run, proposal, parent)
            for proposal, parent in parents.items()
        }

        def note(**attributes: Attribute | None) -> None:
            for span in spans.values():
                span.set_attributes(_named(attributes))

        note(**about, **attributes)
        before = _ABOVE.set({**_ABOVE.get({}), **spans})
        try:
            yield note
        except Stopped:
            note(withdrawn=True)
            raise
        except Exception as error:
            why = redacted(f"{type(error).__name__}: {error}")
            for span in spans.values():
                span.set_status(trace.StatusCode.ERROR, why)
            raise
        finally:
            _ABOVE.reset(before)
            for span in spans.values():
                span.end()

    @contextmanager
    def planning(self) -> Iterator[Callable[[Run, Sequence[ProposalId]], None]]:
        """See `app.engine.tracing.Tracing.planning`."""
        began = time.time_ns()

        def planned(run: Run, proposals: Sequence[ProposalId]) -> None:
            for proposal, parent in self._parents(run, proposals, ()).items():
                self._start("produce", run, proposal, parent, began).end()

        yield planned

    def settled(self, run: Run, proposals: Sequence[ProposalId]) -> None:
        """Writes the first span of each proposal, from its planning to now."""
        for proposal in self._traced(proposals, ()):
            root = root_of(run.name, proposal)
            with self._ids.of(root):
                span = self._start("proposal", run, proposal.id, None, proposal.planned_us * 1000)
            described: dict[str, Attribute | None] = {
                "ordinal": proposal.ordinal,
                "island": proposal.island,
                "operator": proposal.operator,
                "state": proposal.state.value,
                "program": proposal.program,
                "outcome": proposal.outcome or None,
            }
            span.set_attributes(_named(described))
            span.end()

    def close(self) -> None:
        """See `app.engine.tracing.Tracing.close`."""
        ending = threading.Thread(target=self._provider.shutdown, daemon=True)
        ending.start()
        ending.join(END_SECONDS)

    def _start(
        self,
        name: str,
        run: Run,
        proposal: ProposalId,
        parent: trace.Span | None,
        began: int | None = None,
    ) -> trace.Span:
        """Starts a span; without a parent it is the first of a trace."""
        attributes = _named({"run": run.name, "proposal": proposal})
        above = Context() if parent is None else trace.set_span_in_context(parent, Context())
        return self._tracer.start_span(name, above, attributes=attributes, start_time=began)

    def _parents(
        self, run: Run, proposals: Sequence[ProposalId], trials: Sequence[TrialId]
    ) -> dict[ProposalId, trace.Span]:
        """Returns the span that a new one of each proposal is part of, if its trace is sampled."""
        above = _ABOVE.get({})
        found = {proposal: above[proposal] for proposal in proposals if proposal in above}
        unknown = [proposal for proposal in proposals if proposal not in above]
        for proposal in self._traced(unknown, trials):
            root = root_of(run.name, proposal)
            decided = self._provider.sampler.should_sample(Context(), root.trace_id, "proposal")
            if decided.decision is Decision.RECORD_AND_SAMPLE:
                found[proposal.id] = trace.NonRecordingSpan(root)
        return found

    def _traced(
        self, proposals: Sequence[ProposalId], trials: Sequence[TrialId]
    ) -> list[TracedProposal]:
        if not proposals and not trials:
            return []
        try:
            with self._store.begin() as tx:
                return tx.proposals.traced(proposals, trials)
        except Unavailable:
            # The step that follows meets the same error.
            return []


def _named(attributes: Mapping[str, Attribute | None]) -> dict[str, Attribute]:
    return {f"evoq.{name}": value for name, value in attributes.items() if value is not None}
