"""The result of a Job: the last line of its output, framed by a word that its output cannot guess.

The line is `@@EVOQ NONCE BASE64`, where the nonce is the variable `EVOQ_NONCE` of the container.
"""

import base64
import binascii

MARK = b"@@EVOQ"


def split_result(output: bytes, nonce: str) -> tuple[bytes, bytes | None]:
    """Returns what was printed before the result, and the result; None where there is none."""
    start = output.rfind(b"%s %s " % (MARK, nonce.encode()))
    if start < 0 or (start > 0 and output[start - 1 : start] != b"\n"):
        return output, None
    line, end, rest = output[start:].partition(b"\n")
    try:
        result = base64.b64decode(line.split(b" ")[2], validate=True)
    except (binascii.Error, IndexError):
        return output, None
    # Without its end, the line may be cut.
    return (output[:start] + rest, result) if end else (output, None)
