"""The results of a Job: lines of its output, which begin with a word that programs cannot guess.

A line is `@@EVOQ NONCE BASE64`; the nonce is the variable `EVOQ_NONCE` of the container.
"""

import base64
import binascii

MARK = b"@@EVOQ"


def split_results(output: bytes, nonce: str) -> tuple[bytes, tuple[bytes, ...]]:
    """Returns what else was printed, and the contents of the results, in order.

    A line without its end is no result, because it may have been cut.
    """
    beginning = b"%s %s " % (MARK, nonce.encode())
    printed, results = [], []
    for line in output.splitlines(keepends=True):
        if line.startswith(beginning) and line.endswith(b"\n"):
            try:
                results.append(base64.b64decode(line[len(beginning) :].strip(), validate=True))
                continue
            except binascii.Error:
                pass
        printed.append(line)
    return b"".join(printed), tuple(results)
