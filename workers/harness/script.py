"""A program run as a script: by the evaluator's child, with that child's streams and arguments."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

STREAMS = 3


def run(sock: socket.socket, path: str, arguments: list[Any], adopt: Callable[[Any], None]) -> int:
    """Runs the program as `__main__` on three streams that the peer sends; returns its status.

    Args:
      sock: The connection; if it closes, this process ends.
      path: The program's.
      arguments: `sys.argv` after the program's name.
      adopt: Receives the module, whose names stay in use afterwards.
    """
    _, fds, _, _ = socket.recv_fds(sock, 1, STREAMS)
    for stream, fd in enumerate(fds):
        os.dup2(fd, stream)
        os.close(fd)
    threading.Thread(target=_end_with, args=(sock,), daemon=True).start()
    spec = importlib.util.spec_from_file_location("__main__", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not Python source")
    module = importlib.util.module_from_spec(spec)
    module.__dict__["__spec__"] = None
    sys.modules["__main__"] = module
    adopt(module)
    sys.argv[:] = [path, *map(str, arguments)]
    try:
        spec.loader.exec_module(module)
        status = 0
    except SystemExit as error:
        status = _status(error.code)
    except BaseException:
        traceback.print_exc()
        status = 1
    for written in (sys.stdout, sys.stderr):
        # The program or the reader may have closed the stream.
        with contextlib.suppress(Exception):
            written.flush()
    null = os.open("/dev/null", os.O_RDWR)
    # A reader of the streams must see their end.
    for number in range(STREAMS):
        os.dup2(null, number)
    return status


def _status(code: Any) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return int(code) & 0xFF
    with contextlib.suppress(Exception):
        print(code, file=sys.stderr)
    return 1


def _end_with(sock: socket.socket) -> None:
    """Ends this process when the peer is killed, as a script's own process would."""
    with contextlib.suppress(OSError):
        if not sock.recv(1, socket.MSG_PEEK):
            os._exit(0)
