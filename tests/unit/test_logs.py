"""Logs as lines of JSON: one object a record, with what its thread works on, without secrets."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from app.logs import at_work_on, filter_secrets, note_subjects, write_json_lines

KEY = "sk-" + "a1B2c3D4" * 4


@pytest.fixture
def log() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    factory = logging.getLogRecordFactory()
    filter_secrets()
    logger, out = logging.Logger("evoq.test"), io.StringIO()
    logger.addHandler(logging.StreamHandler(out))
    write_json_lines(logger)
    yield logger, out
    logging.setLogRecordFactory(factory)


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_line_names_the_step_and_the_subjects_of_its_thread(
    log: tuple[logging.Logger, io.StringIO],
) -> None:
    logger, out = log

    with at_work_on("evaluate", "trials", (7, 8)):
        logger.warning("trial\n%d was lost", 7)
        note_subjects("a-run", proposals=(3,), trials=())
        logger.warning("and then")
    note_subjects("another-run")
    logger.error("outside")

    first, noted, second = lines(out)
    assert (noted["run"], noted["proposals"], noted["trials"]) == ("a-run", [3], [7, 8])
    assert "run" not in second
    assert (first["step"], first["trials"], first["level"]) == ("evaluate", [7, 8], "warning")
    assert (first["message"], first["logger"]) == ("trial\n7 was lost", "evoq.test")
    assert first["at"].endswith("+00:00")
    assert "step" not in second


def test_a_traceback_is_part_of_the_line_and_holds_no_secret(
    log: tuple[logging.Logger, io.StringIO],
) -> None:
    logger, out = log

    try:
        raise ValueError(f"refused: {KEY}")
    except ValueError:
        logger.exception("the key %s was refused", KEY)

    [line] = lines(out)
    assert "ValueError: refused" in line["traceback"]
    assert KEY not in json.dumps(line)
