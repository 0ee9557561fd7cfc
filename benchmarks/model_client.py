"""The processor time of a model call in this process: the model adapter beside a plain client.

    python -m benchmarks.model_client                      # replies of 50 and 400 tokens
    python -m benchmarks.model_client --together 8         # eight tokens in each segment

A server in a separate process writes replies as vLLM does: an event a token, at a steady speed, in
chunks.  A client that does not ask for a stream receives the same reply in one piece at its end.
The prompt has 8,000 characters.  Processor time hardly depends on the load of the machine.
"""

import argparse
import asyncio
import http.client
import json
import multiprocessing
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from app.adapters.model.providers.chat import completions, request
from app.adapters.model.providers.event_loop import ModelLoop
from app.adapters.model.providers.openai import OpenAIModel
from app.adapters.model.providers.spec import ModelSpec
from app.domain.operator import Prompt

PROMPT = Prompt("s" * 2_000, "u" * 6_000)
TOKEN = " tok"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\n%s\r\n\r\n"


def serve(address: Any, tokens: int, tokens_per_second: float, together: int) -> None:
    """Serves replies of so many tokens, and sends its port over a pipe."""
    common = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}

    def event(delta: dict[str, str], finish: str | None = None, **more: object) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        text = b"data: %s\n\n" % json.dumps({**common, "choices": [choice], **more}).encode()
        return b"%x\r\n%s\r\n" % (len(text), text)

    usage = {"prompt_tokens": 2000, "completion_tokens": tokens, "total_tokens": 2000 + tokens}
    last = (
        b"data: %s\n\ndata: [DONE]\n\n"
        % json.dumps({**common, "choices": [], "usage": usage}).encode()
    )
    first, one = event({"role": "assistant", "content": ""}), event({"content": TOKEN})
    end = event({}, "stop") + b"%x\r\n%s\r\n0\r\n\r\n" % (len(last), last)
    choice = {
        "message": {"role": "assistant", "content": TOKEN * tokens},
        "finish_reason": "stop",
    }
    whole = json.dumps({"model": "m", "choices": [choice], "usage": usage}).encode()
    seconds = tokens / tokens_per_second

    async def stream(writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        began, written = loop.time(), 0
        writer.write(HEAD % (b"text/event-stream", b"transfer-encoding: chunked") + first)
        while written < tokens:
            await asyncio.sleep(began + (written + together) / tokens_per_second - loop.time())
            writer.write(one * min(together, tokens - written))
            written += together
        writer.write(end)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                header = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(header.split(b"content-length:")[1].split(b"\r")[0])
                body = json.loads(await reader.readexactly(length))
                if body.get("stream"):
                    await stream(writer)
                else:
                    await asyncio.sleep(seconds)
                    writer.write(
                        HEAD % (b"application/json", b"content-length: %d" % len(whole)) + whole
                    )
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
        address.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


def synchronous(spec: ModelSpec) -> Callable[[int], None]:
    """Returns a call of the standard library's client, one connection per thread, in one piece."""
    local, address = threading.local(), urlsplit(spec.base_url)

    def call(sample: int) -> None:
        if not hasattr(local, "connection"):
            local.connection = http.client.HTTPConnection(address.netloc, timeout=60.0)
        body = json.dumps(request(spec, PROMPT, sample))
        local.connection.request("POST", f"{address.path}/chat/completions", body)
        answer = json.loads(local.connection.getresponse().read())
        assert completions(spec, [PROMPT], answer, 0.0)[0].text

    return call


def asking(model: OpenAIModel) -> Callable[[int], None]:
    """Returns a call of the product's own adapter."""

    def call(sample: int) -> None:
        [completion] = model.complete([Prompt(PROMPT.system, PROMPT.user, sample=sample)])
        assert completion.text

    return call


def cpu_ms(call: Callable[[int], object], threads: int, calls: int) -> float:
    """Returns the processor time of a call in this process, in milliseconds."""
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(call, range(threads)))
        before = time.process_time()
        list(pool.map(call, range(calls)))
        return 1e3 * (time.process_time() - before) / calls


def measure(tokens: int, options: argparse.Namespace) -> dict[str, object]:
    """Returns the processor times of replies of so many tokens."""
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=serve,
        args=(there, tokens, options.tokens_per_second, options.together),
        daemon=True,
    )
    server.start()
    spec = ModelSpec("m", base_url=f"http://127.0.0.1:{here.recv()}/v1", max_in_flight=256)
    model_loop = ModelLoop()
    calls = {
        "synchronous": synchronous(spec),
        "adapter": asking(OpenAIModel(spec, model_loop)),
    }
    times = {
        name: [cpu_ms(call, options.threads, options.calls) for _ in range(options.turns)]
        for name, call in calls.items()
    }
    model_loop.close()
    server.terminate()
    server.join()
    medians = {name: round(statistics.median(each), 2) for name, each in times.items()}
    return {"tokens": tokens, "cpu_ms": medians}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=[50, 400])
    parser.add_argument("--tokens-per-second", type=float, default=100.0, help="of each reply")
    parser.add_argument("--together", type=int, default=1, help="tokens in one segment")
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    for tokens in options.tokens:
        print(json.dumps(measure(tokens, options)), flush=True)


if __name__ == "__main__":
    main()
