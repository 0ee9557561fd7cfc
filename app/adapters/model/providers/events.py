"""Server-sent events: the JSON values in them, from the blocks of a streamed answer.  No I/O.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation.
Departure: fields other than `data` are ignored, because no endpoint of a language model needs them.
"""

import json

_DONE = "[DONE]"


class Events:
    """Reads events block by block: a block is whatever has arrived, from a byte to many events.

    Attributes:
      done: Whether the endpoint has said that the answer is complete.
    """

    def __init__(self) -> None:
        self.done = False
        self._rest = b""
        self._data: list[str] = []

    def read(self, block: bytes) -> list[object]:
        """Returns the values of the events that a block completes, in order.

        Raises:
          ValueError: An event is not JSON, or not UTF-8.
        """
        text = self._rest + block
        # A line ends with LF, CR or CRLF, and a block may end between the two of the last.
        end = len(text) - text.endswith(b"\r")
        if b"\r" in text[:end]:
            text = text[:end].replace(b"\r\n", b"\n").replace(b"\r", b"\n") + text[end:]
        end = text.rfind(b"\n") + 1
        self._rest = text[end:]
        complete: list[str] = []
        for line in text[:end].decode("utf-8").split("\n")[:-1]:
            if line.startswith("data:"):
                self._data.append(line[5:])
            elif not line and self._data:
                data = self._data[0] if len(self._data) == 1 else "\n".join(self._data)
                self._data = []
                self.done = self.done or data.strip().startswith(_DONE)
                if self.done:
                    break
                complete.append(data)
        # One call for a block takes half the time of one for each event.
        values: list[object] = json.loads(f"[{','.join(complete)}]") if complete else []
        return values
