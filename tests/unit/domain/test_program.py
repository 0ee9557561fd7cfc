"""Fingerprints of programs."""

from app.domain.program import Program, fingerprint


def test_layout_comments_and_docstrings_do_not_make_a_program_new() -> None:
    plain = Program("def f(x):\n    return x + 1\n")
    dressed = Program('def f(x):\n    """Adds."""\n    # one\n    return (x+1)\n')
    assert fingerprint(plain) == fingerprint(dressed)
    assert fingerprint(plain) != fingerprint(Program("def f(x):\n    return x + 2\n"))


def test_source_that_does_not_parse_still_has_a_fingerprint() -> None:
    assert fingerprint(Program("def f(:")) == fingerprint(Program("def  f(:\n"))
    assert fingerprint(Program("(" * 5000))
