"""The cost of a model call in this process: the model adapter beside a plain synchronous client.

A server in a separate process answers every request after 0.2 s with 1,500 letters; the prompt has
8,000.  Run: `python -m benchmarks.model_client`.
"""

import http.client
import json
import multiprocessing
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

LATENCY_SECONDS = 0.2
CALLS = {1: 50, 32: 1_000, 128: 2_000}
PROMPT = Prompt("s" * 2_000, "u" * 6_000)


def serve(address: Any) -> None:
    import asyncio

    choice = {"message": {"role": "assistant", "content": "x" * 1_500}, "finish_reason": "stop"}
    body = json.dumps({"model": "echo", "choices": [choice]}).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                header = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(header.split(b"content-length:")[1].split(b"\r")[0]))
                await asyncio.sleep(LATENCY_SECONDS)
                writer.write(head % len(body) + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
        address.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


def synchronous(spec: ModelSpec) -> Callable[[int], None]:
    """Returns a call of the standard library's client, one connection per thread."""
    local, address = threading.local(), urlsplit(spec.base_url)

    def call(sample: int) -> None:
        if not hasattr(local, "connection"):
            local.connection = http.client.HTTPConnection(address.netloc, timeout=60.0)
        body = json.dumps(request(spec, PROMPT, sample))
        local.connection.request("POST", f"{address.path}/chat/completions", body)
        completions(spec, [PROMPT], local.connection.getresponse().read(), 0.0)

    return call


def measured(name: str, call: Callable[[int], object]) -> None:
    for threads, calls in CALLS.items():
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(call, range(threads)))
            cpu, wall = time.process_time(), time.perf_counter()
            list(pool.map(call, range(calls)))
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        ideal = calls * LATENCY_SECONDS / threads
        print(f"{name:12} {threads:4} threads  {1e3 * cpu / calls:6.2f} ms CPU a call", end="  ")
        print(f"{calls / wall:6.0f} calls/s of {calls / ideal:.0f} possible")


def main() -> None:
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    server.start()
    spec = ModelSpec("echo", base_url=f"http://127.0.0.1:{here.recv()}/v1", max_in_flight=256)
    model_loop = ModelLoop()
    model = OpenAIModel(spec, model_loop)
    measured("synchronous", synchronous(spec))
    measured("model_loop", lambda sample: model.complete([PROMPT]))
    model_loop.close()
    server.terminate()
    server.join()


if __name__ == "__main__":
    main()
