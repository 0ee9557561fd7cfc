"""The events of a streamed answer, in OpenAI's form as vLLM sends it."""

import json
import time
from collections.abc import Sequence

from mock_llm.chat_request import PREFIX, ChatRequest
from mock_llm.replies import Reply

NOTICE = "SIMULATION: evoq mock-llm; no model ran and no accelerator was used"
EVENT_CHARS = 32
"""Most characters of an event: eight tokens.  An event for each would slow the whole machine."""


class EventStream:
    """The events of one answer; each call returns the next ones as the bytes to send."""

    def __init__(self, request: ChatRequest, number: int, replies: Sequence[Reply]) -> None:
        """Begins with nothing sent.

        Args:
          request: What is answered.
          number: Of the request, for its id.
          replies: One for each choice.
        """
        self._replies = replies
        self._counted = request.counted
        self._sent = [0] * len(replies)
        self._head = (
            f'data: {{"id": "chatcmpl-simulated-{number}", "object": "chat.completion.chunk", '
            f'"created": {int(time.time())}, "model": {json.dumps(PREFIX + request.model)}, '
            f'"system_fingerprint": {json.dumps(NOTICE)}, "choices": '
        )
        self._begun = False

    def upto(self, shares: Sequence[float]) -> bytes:
        """Returns the events of the texts so far.

        Args:
          shares: Of each choice's text, from 0 to 1.
        """
        events = [] if self._begun else self._roles()
        self._begun = True
        for index, (reply, share) in enumerate(zip(self._replies, shares, strict=True)):
            end = int(len(reply.text) * min(1.0, share))
            for start in range(self._sent[index], end, EVENT_CHARS):
                text = json.dumps(reply.text[start : min(end, start + EVENT_CHARS)])
                events.append(self._choice(index, f'{{"content": {text}}}'))
            self._sent[index] = max(end, self._sent[index])
        return "".join(events).encode()

    def rest(self, usage: dict[str, object]) -> bytes:
        """Returns the events that are left: of the texts, the finishes, and the usage."""
        texts = self.upto([1.0] * len(self._replies))
        events = [
            self._choice(index, "{}", json.dumps(reply.finish))
            for index, reply in enumerate(self._replies)
        ]
        if self._counted:
            events.append(f'{self._head}[], "usage": {json.dumps(usage)}}}\n\n')
        return texts + "".join([*events, "data: [DONE]\n\n"]).encode()

    def _roles(self) -> list[str]:
        role = '{"role": "assistant", "content": ""}'
        return [self._choice(index, role) for index in range(len(self._replies))]

    def _choice(self, index: int, delta: str, finish: str = "null") -> str:
        choice = f'{{"index": {index}, "delta": {delta}, "logprobs": null'
        return f'{self._head}[{choice}, "finish_reason": {finish}}}]}}\n\n'
