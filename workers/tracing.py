"""Tracing of a worker: whether and where its spans go, by OpenTelemetry's own variables."""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress

from app.domain.run import Run
from app.domain.search.cohort import ProposalId, TrialId
from app.engine.tracing import UNTRACED, Attribute, Note, Tracing
from app.logs import note_subjects
from app.ports.protocols import Store, Unavailable

_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def exporter(environment: Mapping[str, str]) -> str:
    """Returns `otlp` or `console`; "" where no exporter is set.

    Raises:
      ValueError: One is set that this package does not have.
    """
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return ""
    reached = any(environment.get(variable) for variable in _ENDPOINTS)
    name = environment.get("OTEL_TRACES_EXPORTER", "") or ("otlp" if reached else "none")
    if name not in ("otlp", "console", "none"):
        raise ValueError(f"OTEL_TRACES_EXPORTER: {name!r} is none of otlp, console and none")
    for variable in _PROTOCOLS if name == "otlp" else ():
        protocol = environment.get(variable) or "http/protobuf"
        if protocol != "http/protobuf":
            raise ValueError(
                f"{variable}: {protocol!r} is not supported; write http/protobuf, which a "
                f"collector takes at port 4318 as a rule"
            )
    return "" if name == "none" else name


def tracing(environment: Mapping[str, str], store: Store, show: Callable[[str], None]) -> Tracing:
    """Returns what writes the spans of this process; nothing is imported where none is wanted.

    A worker works without traces too: what is wrong with them is one line.  Where log lines are
    JSON, they learn from it what a step is about.

    Args:
      environment: That of this process.
      store: The ledger.
      show: Receives the line.
    """
    traced = _traced(environment, store, show)
    if environment.get("EVOQ_LOG_FORMAT") == "json":
        return LoggedTracing(traced, store)
    return traced


def _traced(environment: Mapping[str, str], store: Store, show: Callable[[str], None]) -> Tracing:
    try:
        name = exporter(environment)
        return _spans(name, store) if name else UNTRACED
    except ImportError as error:
        show(
            f"no traces are sent: an exporter of OpenTelemetry is set and {error.name} is not "
            f"installed; pip install 'evoqueue[otel]'"
        )
        return UNTRACED
    except ValueError as error:
        show(f"no traces are sent: {error}")
        return UNTRACED


class LoggedTracing:
    """Lets the JSON log lines of a step name its run, proposals and trials, as its spans do."""

    def __init__(self, traced: Tracing, store: Store) -> None:
        """Passes everything on to `traced`; the ledger knows the proposals of trials."""
        self._traced = traced
        self._store = store
        self.planning, self.settled, self.close = traced.planning, traced.settled, traced.close

    def span(
        self,
        name: str,
        run: Run,
        *,
        proposals: Sequence[ProposalId] = (),
        trials: Sequence[TrialId] = (),
        **attributes: Attribute | None,
    ) -> AbstractContextManager[Note]:
        """See `app.engine.tracing.Tracing.span`."""
        if trials and not proposals:
            with suppress(Unavailable), self._store.begin() as tx:
                proposals = [found.id for found in tx.proposals.traced((), trials)]
        note_subjects(run.name, proposals=proposals, trials=trials)
        return self._traced.span(name, run, proposals=proposals, trials=trials, **attributes)


def _spans(name: str, store: Store) -> Tracing:
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter

    from workers.spans import FirstIds, Spans

    to: SpanExporter = ConsoleSpanExporter()
    if name == "otlp":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        to = OTLPSpanExporter()
    worker = {
        "service.name": "evoqueue",
        "service.instance.id": f"{socket.gethostname()}-{os.getpid()}",
    }
    resource = Resource.create({**worker, **OTELResourceDetector().detect().attributes})
    ids = FirstIds()
    provider = TracerProvider(resource=resource, id_generator=ids, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(to))
    return Spans(provider, ids, store)
