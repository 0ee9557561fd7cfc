"""JSON log lines of steps: which run, proposal and trial each is about."""

import io
import json
import logging
from dataclasses import replace

from app.adapters.store.sql import SqlStore
from app.domain.problem import Job, Outcome
from app.engine import lifecycle
from app.engine.context import Context
from app.logs import at_work_on, write_json_lines
from app.ports.protocols import NEVER, Stop
from tests.engine.conftest import new_run, table
from tests.engine.toy import ToySandbox, problem
from workers.tracing import tracing


def test_a_line_of_a_trial_names_its_run_and_its_proposals(ctx: Context, store: SqlStore):
    logger, out = logging.Logger("evoq.test"), io.StringIO()
    logger.addHandler(logging.StreamHandler(out))
    write_json_lines(logger)

    class Complaining(ToySandbox):
        def run(self, job: Job, stop: Stop = NEVER) -> Outcome:
            logger.warning("the disk is slow")
            return super().run(job)

    toy = problem()
    traced = tracing({"EVOQ_LOG_FORMAT": "json"}, store, print)
    logged = replace(ctx, sandbox=Complaining(), tracing=traced, problem=lambda digest: toy)
    lifecycle.start(logged, toy, new_run(toy))
    messages = ctx.executor._messages  # type: ignore[attr-defined]
    while not out.getvalue():
        step, subject = messages.popleft()
        with at_work_on(step, "trials" if step == "evaluate" else "proposals", (subject,)):
            table(logged)[step](subject)

    line = json.loads(out.getvalue().splitlines()[0])
    assert (line["step"], line["run"], line["trials"]) == ("evaluate", "toy-run", [subject])
    with store.begin() as tx:
        of_trial = [found.id for found in tx.proposals.traced((), [subject])]
    assert line["proposals"] == of_trial != []
