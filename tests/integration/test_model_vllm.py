"""The provider `vllm` without vLLM: what it asks of an engine, who is asked, what is left behind.

The engine itself, loaded for real, is tested in `tests/vllm`.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import psutil
import pytest

from app.adapters.model.choose import Providers
from app.adapters.model.congestion.engine_queue import EngineQueue
from app.adapters.model.congestion.gate import Ended, FixedGate, RequestResult
from app.adapters.model.providers.event_loop import ModelLoop
from app.adapters.model.providers.gates import Gates, ProcessLimits
from app.adapters.model.providers.spec import IN_PROCESS, ModelSpec
from app.adapters.model.providers.vllm import VllmModel
from app.adapters.model.providers.vllm_engine import (
    OLDEST,
    EngineRequest,
    GeneratedText,
    GeneratedTexts,
    VllmEngine,
    VllmLaunch,
)
from app.adapters.store.sql import SqlStore
from app.config.models import ModelSettings
from app.domain.operator import Prompt, ReplyForm
from app.ports.protocols import Misconfigured, Unavailable
from tests.contracts.language_model import PartialAnswersContract, Serve
from workers import lifecycle


class Canned:
    """An engine that answers from a function, each sample alike; notes what it was asked."""

    def __init__(self, answer: Callable[[str], str], template: str = "") -> None:
        self.asked: list[EngineRequest] = []
        self._answer = answer
        self._template = template

    def template(self) -> str:
        return self._template

    def submit(self, question: EngineRequest) -> "Future[GeneratedTexts]":
        self.asked.append(question)
        text = self._answer(question.messages[-1]["content"])
        choice = GeneratedText(text, "stop", len(text))
        answer: Future[GeneratedTexts] = Future()
        answer.set_result(GeneratedTexts((choice,) * question.sampling.get("n", 1), 10, 4))
        return answer


class Batching:
    """SIMULATED: an engine with so many places; the others wait in it, and it says how many."""

    def __init__(self, places: int, seconds: float) -> None:
        self.most_waiting = 0
        self._seconds = seconds
        self._running = self._waiting = 0
        self._counting = threading.Lock()
        self._pool = ThreadPoolExecutor(places)

    def template(self) -> str:
        return ""

    def submit(self, question: EngineRequest) -> "Future[GeneratedTexts]":
        with self._counting:
            self._waiting += 1
        return self._pool.submit(self._generate)

    def queue(self) -> EngineQueue:
        self.most_waiting = self._waiting
        return EngineQueue(self._running, self._waiting)

    def close(self) -> None:
        self._pool.shutdown()

    def _generate(self) -> GeneratedTexts:
        with self._counting:
            self._waiting, self._running = self._waiting - 1, self._running + 1
        time.sleep(self._seconds)
        with self._counting:
            self._running -= 1
        return GeneratedTexts((GeneratedText("x", "stop", 1),), 1, 0)


@pytest.fixture
def model_loop() -> Iterator[ModelLoop]:
    opened = ModelLoop()
    yield opened
    opened.close()


class TestVllmModel(PartialAnswersContract):
    @pytest.fixture
    def serve(self, model_loop: ModelLoop) -> Serve:
        spec = ModelSpec("tiny", base_url=IN_PROCESS)
        return lambda answer: VllmModel(spec, Canned(answer), model_loop)


def test_prompts_of_one_text_are_one_request_and_their_prompt_counts_once(model_loop: ModelLoop):
    engine = Canned(str.upper)
    spec = ModelSpec(
        "tiny",
        base_url=IN_PROCESS,
        max_tokens=7,
        prompt_usd=1e6,
        cached_usd=0.0,
        completion_usd=0.0,
    )
    prompts = [Prompt("s", "a", 1), Prompt("s", "b", 2), Prompt("s", "a", 3)]

    replies = VllmModel(spec, engine, model_loop).complete(prompts)

    by_text = {question.messages[-1]["content"]: question for question in engine.asked}
    assert len(engine.asked) == 2
    assert by_text["a"].sampling["n"] == 2
    assert "n" not in by_text["b"].sampling
    assert by_text["a"].sampling["max_tokens"] == 7
    assert by_text["a"].messages[0] == {"role": "system", "content": "s"}
    assert [reply.text for reply in replies] == ["A", "B", "A"]
    assert [reply.prompt_tokens for reply in replies] == [10, 10, 0]
    assert [reply.cached_tokens for reply in replies] == [4, 4, 0]
    assert [reply.cost_usd for reply in replies] == [6.0, 6.0, 0.0]


BOUND = ReplyForm("def f():\n", stops=("```",), ending="```", grammar="root ::= [a-z]+")


def test_a_reply_goes_on_from_its_opening_and_keeps_to_its_grammar(model_loop: ModelLoop):
    engine = Canned(str.upper, "{{ messages }}")
    model = VllmModel(ModelSpec("tiny", base_url=IN_PROCESS), engine, model_loop)

    [bound, free] = model.complete([Prompt("s", "a", form=BOUND), Prompt("s", "b")])

    by_length = sorted(engine.asked, key=lambda request: len(request.messages))
    assert bound.text == "def f():\nDEF F():\n```"
    assert free.text == "B"
    assert by_length[1].messages[-1] == {"role": "assistant", "content": "def f():\n"}
    assert by_length[1].sampling["structured_outputs"] == {"grammar": "root ::= [a-z]+"}
    assert by_length[1].sampling["stop"] == ["```"]
    assert by_length[1].template == {
        "continue_final_message": True,
        "add_generation_prompt": False,
    }
    assert by_length[0].template == {"add_generation_prompt": True}
    assert not {"structured_outputs", "stop"} & by_length[0].sampling.keys()


@pytest.mark.parametrize("template", ["", "{% if enable_thinking %}<think>{% endif %}"])
def test_a_model_that_may_think_or_has_no_template_is_not_bound(
    model_loop: ModelLoop, template: str
):
    engine = Canned(str.upper, template)
    model = VllmModel(ModelSpec("tiny", base_url=IN_PROCESS), engine, model_loop)

    [reply] = model.complete([Prompt("s", "a", form=BOUND)])

    assert reply.text == "A"
    assert "stop" not in engine.asked[0].sampling


def test_an_engine_that_refuses_a_bound_reply_is_asked_for_a_free_one(model_loop: ModelLoop):
    def refuse_grammars(request: EngineRequest) -> "Future[GeneratedTexts]":
        if "structured_outputs" in request.sampling:
            raise Misconfigured("the vLLM engine refuses a request") from ValueError("no grammar")
        return submit(request)

    engine = Canned(str.upper, "{{ messages }}")
    submit, engine.submit = engine.submit, refuse_grammars  # type: ignore[method-assign]
    model = VllmModel(ModelSpec("tiny", base_url=IN_PROCESS), engine, model_loop)

    replies = [model.complete([Prompt("s", text, form=BOUND)])[0] for text in ("a", "b")]

    assert [reply.text for reply in replies] == ["A", "B"]
    assert not any("stop" in request.sampling for request in engine.asked)


def test_samples_and_runs_have_different_seeds(model_loop: ModelLoop):
    def seed(sample: int, run: int) -> object:
        spec = ModelSpec("tiny", base_url=IN_PROCESS, seeded=True)
        model = VllmModel(spec, engine := Canned(str), model_loop, seed=run)
        model.complete([Prompt("", "a", sample)])
        return engine.asked[0].sampling["seed"]

    assert len({seed(1, 1), seed(2, 1), seed(1, 2)}) == 3
    assert seed(1, 1) == seed(1, 1)


def providers(store: SqlStore, **environment: str) -> Providers:
    engine = VllmEngine(VllmLaunch("/models/tiny", "tiny"))
    return Providers(store, environment.get, engine)


@pytest.mark.parametrize(
    "settings",
    [{"provider": "vllm", "model": "tiny"}, {"model": "tiny"}, {"model": "/models/tiny"}],
)
def test_a_run_with_the_engines_model_uses_the_engine(store: SqlStore, settings):
    model = providers(store).model(ModelSettings(**settings), seed=1)

    with pytest.raises(Unavailable, match="engine of this worker is not loaded"):
        model.complete([Prompt("", "hello")])


def test_a_run_with_an_address_uses_that_address(store: SqlStore):
    settings = ModelSettings(model="tiny", base_url="http://127.0.0.1:1/v1", retries=0)
    opened = providers(store)

    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        opened.model(settings, seed=1).complete([Prompt("", "hello")])
    opened.close()


def test_a_run_with_another_model_gets_the_name_of_the_served_one(store: SqlStore):
    with pytest.raises(Misconfigured, match="serves the model 'tiny'"):
        providers(store).model(ModelSettings(provider="vllm", model="large"), seed=1)


@pytest.mark.skipif(bool(find_spec("vllm")), reason="vLLM is installed here")
def test_without_vllm_the_error_names_the_package():
    with pytest.raises(Misconfigured, match=r"evoqueue\[gpu\]"):
        VllmEngine(VllmLaunch("/models/tiny", "tiny")).start()


@dataclass(frozen=True)
class Queues:
    consume_from: tuple[str, ...] = ("gpu",)


@dataclass(frozen=True)
class Amqp:
    queues: Queues = Queues()


@dataclass(frozen=True)
class Application:
    amqp: Amqp = Amqp()


@dataclass(frozen=True)
class Worker:
    """What the start-up reads of a Celery worker."""

    pool_cls: str
    app: Application = Application()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> VllmEngine:
    """An engine whose model is nowhere, in a worker with everything else."""
    absent = VllmEngine(VllmLaunch("/nowhere", "tiny"))
    monkeypatch.setattr(lifecycle, "worker_engine", lambda: absent)
    monkeypatch.setattr(lifecycle, "_context_or_exit", lambda: None)
    return absent


def test_a_worker_that_forks_does_not_load_an_engine(engine: VllmEngine):
    with pytest.raises(SystemExit, match="needs the pool `threads`"):
        lifecycle.prepare(Worker("prefork"))


def test_a_worker_whose_model_cannot_be_loaded_ends_with_the_reason(
    engine: VllmEngine, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit, match="EVOQ_VLLM_MODEL"):
        lifecycle.prepare(Worker("threads"))

    assert "vllm: loading /nowhere" in capsys.readouterr().err


def test_a_vllm_that_is_too_old_is_refused_with_the_version_that_is_needed(
    monkeypatch: pytest.MonkeyPatch, repository: Path
):
    old = ModuleType("vllm")
    old.__dict__["__version__"] = "0.11.2"
    monkeypatch.setitem(sys.modules, "vllm", old)
    needed = ".".join(map(str, OLDEST))

    with pytest.raises(Misconfigured, match=f"vLLM 0.11.2 is installed, and {needed} or later"):
        VllmEngine(VllmLaunch("/nowhere", "tiny")).start()

    assert f'"vllm>={needed}"' in (repository / "pyproject.toml").read_text()


WORKER = """
import subprocess, sys, time
from app.adapters.model.providers.vllm_orphans import Orphans

orphans = Orphans()
with orphans.adopted():
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
if sys.argv[1] == "released":
    orphans.release()
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.timing
@pytest.mark.parametrize(("charge", "survives"), [("adopted", False), ("released", True)])
def test_what_a_killed_worker_had_in_its_charge_is_killed_with_it(
    charge: str, survives: bool, repository: Path
):
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, charge], stdout=subprocess.PIPE, cwd=repository
    )
    assert worker.stdout is not None
    child = psutil.Process(int(worker.stdout.readline()))

    worker.kill()
    worker.wait()
    worker.stdout.close()
    deadline = time.monotonic() + (1 if survives else 60)
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)

    assert alive(child) is survives
    if survives:
        child.kill()


SHARING = """
import multiprocessing, time
from app.adapters.model.providers.vllm_orphans import Orphans

if __name__ == "__main__":
    orphans, spawn = Orphans(), multiprocessing.get_context("spawn")
    with orphans.adopted():
        lock = spawn.Lock()
        child = spawn.Process(target=time.sleep, args=(600,))
        child.start()
    print(child.pid, lock._semlock.name, flush=True)
    time.sleep(600)
"""


@pytest.mark.timing
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere semaphores are not to be seen")
def test_what_a_killed_worker_shared_with_its_engine_is_removed(repository: Path):
    worker = subprocess.Popen(
        [sys.executable, "-c", SHARING], stdout=subprocess.PIPE, cwd=repository, text=True
    )
    assert worker.stdout is not None
    pid, name = worker.stdout.readline().split()
    child, shared = psutil.Process(int(pid)), Path("/dev/shm") / f"sem.{name.removeprefix('/')}"
    assert shared.exists()

    worker.kill()
    worker.wait()
    worker.stdout.close()
    deadline = time.monotonic() + 60
    while (alive(child) or shared.exists()) and time.monotonic() < deadline:
        time.sleep(0.05)

    assert not alive(child)
    assert not shared.exists()


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # between the two
        return False


def test_further_fields_are_sampling_parameters_of_the_engine(model_loop: ModelLoop):
    engine = Canned(str)
    spec = ModelSpec("tiny", base_url=IN_PROCESS, extra_body={"top_k": 20, "ignore_eos": True})

    [reply] = VllmModel(spec, engine, model_loop).complete([Prompt("", "a")])

    assert (engine.asked[0].sampling["top_k"], engine.asked[0].sampling["ignore_eos"]) == (20, True)
    assert reply.parameters["top_k"] == 20


def test_the_window_follows_the_queue_of_the_engine_in_the_worker():
    engine = Batching(places=8, seconds=0.2)
    gates = Gates(ProcessLimits(), engine.queue)
    model_loop = ModelLoop(gates, gates.close)
    spec = ModelSpec("tiny", base_url=IN_PROCESS, target_in_flight=48, parallel_generations=60)
    model = VllmModel(spec, engine, model_loop)

    with ThreadPoolExecutor(48) as pool:
        list(pool.map(lambda n: model.complete([Prompt("", "hi", n)]), range(400)))
    gate = model_loop.gate(spec)

    assert gate.status.window <= 16
    assert engine.most_waiting <= 8
    model_loop.close()
    engine.close()


@pytest.mark.parametrize(
    ("fault", "ended"),
    [(Unavailable("died"), Ended.FAILED), (Misconfigured("no"), Ended.REFUSED)],
)
def test_the_gate_receives_the_result_of_a_request_to_the_engine(fault: Unavailable, ended: Ended):
    results: list[RequestResult] = []

    class Note(FixedGate):
        async def release(self, outcome: RequestResult) -> None:
            results.append(outcome)
            await super().release(outcome)

    class Failing:
        def template(self) -> str:
            return ""

        def submit(self, question: EngineRequest) -> "Future[GeneratedTexts]":
            answer: Future[GeneratedTexts] = Future()
            answer.set_exception(fault)
            return answer

    model_loop = ModelLoop(lambda spec: Note(4))
    model = VllmModel(ModelSpec("tiny", base_url=IN_PROCESS), Failing(), model_loop)
    with pytest.raises(type(fault)):
        model.complete([Prompt("", "a", n) for n in range(3)])

    assert [(each.ended, each.samples) for each in results] == [(ended, 3)]
    model_loop.close()


def test_an_engine_that_gives_no_answer_is_left_in_time_and_its_request_aborted():
    class Silent:
        answer: "Future[GeneratedTexts]" = Future()

        def submit(self, question: EngineRequest) -> "Future[GeneratedTexts]":
            return self.answer

    engine, model_loop = Silent(), ModelLoop()
    spec = ModelSpec("tiny", base_url=IN_PROCESS, deadline_seconds=0.2)
    with pytest.raises(Unavailable, match=r"no answer within 0\.2 s"):
        VllmModel(spec, engine, model_loop).complete([Prompt("", "a")])

    assert engine.answer.cancelled()
    model_loop.close()
