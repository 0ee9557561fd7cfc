"""Which report an error becomes."""

from app.cli.output import WRONG_USAGE, ErrorReport
from app.client.notes import CommandError
from app.config.layers import UsageError
from app.domain.problem import EvaluatorBroken, ProblemError
from app.embedded.children import EmbeddedError
from app.ports.protocols import Misconfigured, Unavailable


def error_report(error: BaseException) -> ErrorReport:
    """Returns the report of an error; of an unexpected one, that of an internal error."""
    text = str(error)
    match error:
        case UsageError():
            code = WRONG_USAGE
            return ErrorReport(
                "usage", text, error.what, error.where, error.value, error.remedy, code
            )
        case ProblemError():
            return ErrorReport("problem", text, error.what, error.where, error.value, error.remedy)
        case EvaluatorBroken():
            message = f"the evaluator cannot be used: {text}"
            return ErrorReport("evaluator", message, error.what, error.where, remedy=error.remedy)
        case Misconfigured():
            return ErrorReport("misconfigured", text, text)
        case Unavailable():
            remedy = "Check that it is running and can be reached; `evoq doctor` says more."
            return ErrorReport("unavailable", f"{text}. {remedy}", text, remedy=remedy)
        case EmbeddedError():
            return ErrorReport("embedded", text, text)
        case KeyError() | IndexError():
            return _internal(error)
        case CommandError() | LookupError() | ValueError():
            return ErrorReport("failed", text, text)
        case OSError():
            path = str(error.filename or "")
            what = error.strerror or type(error).__name__
            remedy = "Check the path, its permissions and the free space."
            message = f"{path}: {what}. {remedy}" if path else f"{what}. {remedy}"
            return ErrorReport("system", message, what, path, remedy=remedy)
        case _:
            return _internal(error)


def _internal(error: BaseException) -> ErrorReport:
    remedy = "This is a defect: run it again with --debug and report what it says."
    what = f"internal error: {type(error).__name__}: {error}"
    return ErrorReport("internal", f"{what}. {remedy}", what, remedy=remedy)
