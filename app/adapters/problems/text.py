"""Bytes as text: UTF-8, or a clear refusal."""

from app.adapters.problems.errors import ProblemError


def decoded(content: bytes, where: str) -> str:
    """Returns a file's text; a byte order mark is dropped.

    Raises:
      ProblemError: The file is not UTF-8, or holds NUL bytes.
    """
    try:
        text = content.decode("utf-8-sig")
        bad = text.find("\x00")
    except UnicodeDecodeError as error:
        text, bad = "", error.start
    if bad >= 0:
        raise ProblemError(
            "not a text in UTF-8",
            where=where,
            value=f"at {bad}: {content[bad : bad + 8]!r}",
            remedy="Save the file as UTF-8 text.",
        )
    return text


def source_text(content: bytes, where: str) -> str:
    """Returns the text of a program or of an evaluator.

    Raises:
      ProblemError: The file is empty, or not UTF-8 text.
    """
    text = decoded(content, where)
    if not text.strip():
        raise ProblemError("the file is empty", where=where, remedy="Fill it, or remove it.")
    return text
