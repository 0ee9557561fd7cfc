"""Explanations: the commonest end of a run's proposals, read from the ledger and explained."""

from collections.abc import Mapping

from app.config.settings import stored_settings
from app.domain.evaluation import FailureKind
from app.domain.remedies import Explanation, commonest, explained
from app.domain.run import Run
from app.domain.secrets import redacted
from app.ports.ledger import Transaction

_AMONG = 200
"""Newest failures of a kind among which the commonest detail is looked for."""


def read_explanation(
    tx: Transaction, run: Run, failures: Mapping[str, int], cuts: Mapping[str, int], settled: int
) -> Explanation | None:
    """Returns the explanation of the commonest end of a run's proposals; None below three of one.

    Args:
      tx: A transaction.
      run: The run.
      failures: Its failed proposals by kind.
      cuts: Its cut proposals by reason.
      settled: Its proposals that have ended.
    """
    most = commonest(failures, cuts)
    if most is None:
        return None
    usual = None
    if isinstance(most.kind, FailureKind):
        usual = tx.history.usual_failure(run.id, most.kind.value, _AMONG)
    llm = stored_settings(run.settings).llm
    limits = [model.max_tokens for model in llm.every_model]
    return explained(
        most,
        settled,
        redacted(usual.newest) if usual else "",
        alike=usual.count if usual else None,
        max_tokens=max((limit for limit in limits if limit is not None), default=llm.max_tokens),
    )
