"""A sandbox at the other end of an attached container's streams."""

import contextlib
import json
import select
import socket
import struct
import time
from collections.abc import Sequence

from docker import APIClient
from docker.errors import DockerException, NotFound
from requests.exceptions import RequestException

from app.adapters.sandbox.connection import Loss, SandboxLost, SandboxOverdue
from app.adapters.sandbox.engine import engine_client, remove

_STREAM_HEADER = struct.Struct(">BxxxL")
_STDOUT, _STDERR = 1, 2
_ERROR_OUTPUT_BYTES = 2000
_ENDING_SECONDS = 3.0
_ANSWER_SECONDS = 5.0
_LATE_SECONDS = 0.1
_COMPUTING_SECONDS, _COMPUTING_SHARE = 0.2, 0.1
"""How long a container that does not answer is watched, and the share of one processor from which
on what runs in it, and not the machine, keeps its zygote from answering."""
_REMEMBERING_SECONDS = 1.0
"""How far events are read ahead, because an end may be reported before its cause."""
_ENDED_FROM_OUTSIDE = ("0", "137", "143")
"""Exit codes of a container whose zygote ended itself, or that the engine has killed or stopped."""


class ContainerConnection:
    """A sandbox at the other end of an attached container's streams."""

    def __init__(self, container: str, engine_seconds: float, *, own_kernel: bool) -> None:
        """Starts a container and attaches to it.

        Args:
          container: Its id.
          engine_seconds: Longest time the engine may take to answer one request.
          own_kernel: Whether its runtime brings a kernel, which its programs may end.
        """
        self._own_kernel = own_kernel
        self._container = container
        self._engine_seconds = engine_seconds
        self._errors = b""
        self._out = bytearray()
        self._closed = False
        self._ending_seconds = _ENDING_SECONDS
        self._began = int(time.time()) - 1
        with engine_client(engine_seconds) as engine:
            streams = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            self._response = engine.attach_socket(container, params=streams)
            # Our own descriptor: closing the client must not close the stream.
            self._socket: socket.socket = self._response._sock
            try:
                engine.start(container)
            except (DockerException, RequestException, OSError):
                self._hang_up()
                remove(engine, container)
                raise

    def send(self, parts: Sequence[bytes], deadline: float) -> None:
        try:
            for part in parts:
                self._set_deadline(deadline)
                self._socket.sendall(part)
        except TimeoutError as error:
            raise SandboxOverdue("the container takes no input") from error
        except OSError as error:
            raise SandboxLost("the container has ended") from error

    def receive(self, size: int, deadline: float) -> bytes:
        while len(self._out) < size:
            self._receive_piece(deadline)
        received = bytes(self._out[:size])
        del self._out[:size]
        return received

    def _receive_piece(self, deadline: float) -> None:
        stream, length = _STREAM_HEADER.unpack(self._exactly(_STREAM_HEADER.size, deadline))
        piece = self._exactly(length, deadline)
        if stream == _STDOUT:
            self._out += piece
        elif stream == _STDERR:
            self._errors = (self._errors + piece)[-_ERROR_OUTPUT_BYTES:]

    def _exactly(self, size: int, deadline: float) -> bytes:
        received = bytearray()
        try:
            while len(received) < size:
                self._set_deadline(deadline)
                piece = self._socket.recv(min(size - len(received), 1 << 20))
                if not piece:
                    raise SandboxLost("the container has ended")
                received += piece
        except TimeoutError as error:
            raise SandboxOverdue("the container does not answer") from error
        except OSError as error:
            raise SandboxLost("the container's stream broke") from error
        return bytes(received)

    def _set_deadline(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0 and self.silent():
            raise SandboxOverdue("the container does not answer")
        # What came while this process was itself held up is read also after the deadline.
        self._socket.settimeout(max(left, _LATE_SECONDS))

    def interrupt(self) -> None:
        with contextlib.suppress(OSError):
            # The zygote reads the end of its input and exits.
            self._socket.shutdown(socket.SHUT_WR)

    def silent(self, seconds: float = 0.0) -> bool:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        # A piece may hold several frames, so bytes can be here already.
        return not self._out and not poll.poll(seconds * 1000)

    def outrun(self) -> bool:
        """Asks the engine, twice, how much processor time the container has had."""
        with engine_client(_ANSWER_SECONDS) as engine:
            try:
                before, began = _processor_seconds(engine, self._container), time.monotonic()
                time.sleep(_COMPUTING_SECONDS)
                used = _processor_seconds(engine, self._container) - before
            except NotFound:
                # The container has ended, which its stream reports.
                return False
        self._ending_seconds = 0.0
        return used >= _COMPUTING_SHARE * (time.monotonic() - began)

    def check(self) -> None:
        with engine_client(_ANSWER_SECONDS) as engine:
            engine.ping()

    def loss(self) -> Loss:
        """Asks the engine, which keeps the events of a removed container for a while.

        In an ordinary container the kernel ends one program.  A runtime with a kernel of its own is
        ended as a whole, and the sandbox with it: for want of memory, or of threads.
        """
        params = {
            "since": str(self._began),
            "until": f"{time.time() + _REMEMBERING_SECONDS:.3f}",
            "filters": json.dumps({"container": [self._container], "event": ["oom", "die"]}),
        }
        loss = Loss.UNKNOWN
        with engine_client(_ANSWER_SECONDS) as engine:
            # The library's own `events` waits for ever.
            url = f"{engine.base_url}/v{engine.api_version}/events"
            with engine.get(url, params=params, stream=True, timeout=_ANSWER_SECONDS) as response:
                response.raise_for_status()
                for event in map(json.loads, response.iter_lines()):
                    if event["Action"] == "oom":
                        return Loss.MEMORY
                    code = event["Actor"]["Attributes"].get("exitCode", "0")
                    if self._own_kernel and code not in _ENDED_FROM_OUTSIDE:
                        loss = Loss.KERNEL
        return loss

    def error_output(self) -> str:
        with contextlib.suppress(SandboxLost, SandboxOverdue):
            while True:
                self._receive_piece(time.monotonic() + 1.0)
        return self._errors.decode("utf-8", "replace").strip()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        ended = False
        with contextlib.suppress(OSError):
            # The zygote reads the end of its input and exits.
            self._socket.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + self._ending_seconds
        try:
            while time.monotonic() < deadline:
                self._exactly(1, deadline)
        except SandboxLost:
            ended = True
        except SandboxOverdue:
            pass
        self._hang_up()
        if not ended:
            with engine_client(self._engine_seconds) as engine:
                remove(engine, self._container)

    def _hang_up(self) -> None:
        # This object closes first, because it flushes the layers below it.
        self._response._response.close()
        self._response.close()
        self._socket.close()


def _processor_seconds(engine: APIClient, container: str) -> float:
    """Returns the processor time of a container since its start; 0.0 where none is counted."""
    stats = engine.stats(container, stream=False, one_shot=True)
    return float(stats["cpu_stats"]["cpu_usage"]["total_usage"]) / 1e9
