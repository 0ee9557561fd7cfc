"""Whether and where a worker sends spans, by OpenTelemetry's own variables."""

import sys
from typing import Any

import pytest

from app.engine.tracing import UNTRACED
from workers.tracing import exporter, tracing

HERE = "http://127.0.0.1:4318"


class NoStore:
    def begin(self, *, snapshot: bool = False) -> Any:
        raise AssertionError("nobody may read the ledger here")


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": HERE}, "otlp"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": HERE}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "console"}, "console"),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": HERE}, ""),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": HERE}, ""),
    ],
)
def test_the_variables_of_opentelemetry_choose_the_exporter(
    environment: dict[str, str], name: str
) -> None:
    assert exporter(environment) == name


@pytest.mark.parametrize(
    ("environment", "line"),
    [
        (
            {"OTEL_TRACES_EXPORTER": "zipkin"},
            "no traces are sent: OTEL_TRACES_EXPORTER: 'zipkin' is none of otlp, console and none",
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": HERE, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "no traces are sent: OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' is not supported; write "
            "http/protobuf, which a collector takes at port 4318 as a rule",
        ),
    ],
)
def test_an_exporter_that_does_not_exist_is_one_line_and_the_worker_goes_on(
    environment: dict[str, str], line: str
) -> None:
    shown: list[str] = []

    assert tracing(environment, NoStore(), shown.append) is UNTRACED
    assert shown == [line]


def test_a_missing_library_is_one_line_and_the_worker_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    shown: list[str] = []

    chosen = tracing({"OTEL_EXPORTER_OTLP_ENDPOINT": HERE}, NoStore(), shown.append)

    assert chosen is UNTRACED
    [line] = shown
    assert line.startswith("no traces are sent: ")
    assert "opentelemetry.sdk.resources is not installed; pip install 'evoqueue[otel]'" in line
