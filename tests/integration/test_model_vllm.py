"""The provider `vllm` without vLLM: what it asks of an engine, who is asked, what is left behind.

The engine itself, loaded for real, is tested in `tests/vllm`.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from app.adapters.model.chat import ModelSpec
from app.adapters.model.vllm import IN_PROCESS, VllmModel
from app.adapters.model.vllm_engine import Choice, Generated, Question, VllmEngine
from app.adapters.model.vllm_loading import Launch
from app.adapters.store.sql import SqlStore
from app.domain.operator import Prompt
from app.model_settings import ModelSettings
from app.ports import Misconfigured, Unavailable
from app.providers import Providers
from tests.contracts.language_model import LanguageModelContract, Serve
from workers import gpu


class Canned:
    """An engine that answers from a function, each sample alike; notes what it was asked."""

    def __init__(self, answer: Callable[[str], str]) -> None:
        self.asked: list[Question] = []
        self._answer = answer

    def ask(self, question: Question, seconds: float) -> Generated:
        self.asked.append(question)
        text = self._answer(question.messages[-1]["content"])
        choice = Choice(text, "stop", len(text))
        return Generated((choice,) * question.sampling.get("n", 1), 10, 4)


class TestVllmModel(LanguageModelContract):
    @pytest.fixture
    def serve(self) -> Serve:
        return lambda answer: VllmModel(ModelSpec("tiny", base_url=IN_PROCESS), Canned(answer))


def test_prompts_of_one_text_are_one_request_and_their_prompt_counts_once():
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

    replies = VllmModel(spec, engine).complete(prompts)

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


def test_samples_and_runs_are_told_apart_by_seed():
    def seed(sample: int, run: int) -> object:
        model = VllmModel(ModelSpec("tiny", base_url=IN_PROCESS), engine := Canned(str), seed=run)
        model.complete([Prompt("", "a", sample)])
        return engine.asked[0].sampling["seed"]

    assert len({seed(1, 1), seed(2, 1), seed(1, 2)}) == 3
    assert seed(1, 1) == seed(1, 1)


def providers(store: SqlStore, **environment: str) -> Providers:
    engine = VllmEngine(Launch("/models/tiny", "tiny"))
    return Providers(store, environment.get, engine)


@pytest.mark.parametrize(
    "told", [{"provider": "vllm", "model": "tiny"}, {"model": "tiny"}, {"model": "/models/tiny"}]
)
def test_a_run_that_asks_for_the_engines_model_is_answered_by_it(store: SqlStore, told):
    model = providers(store).model(ModelSettings(**told), seed=1)

    with pytest.raises(Unavailable, match="engine of this worker is not loaded"):
        model.complete([Prompt("", "hello")])


def test_a_run_that_names_an_address_asks_there(store: SqlStore):
    told = ModelSettings(model="tiny", base_url="http://127.0.0.1:1/v1", retries=0)
    opened = providers(store)

    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        opened.model(told, seed=1).complete([Prompt("", "hello")])
    opened.close()


def test_a_run_that_asks_for_another_model_of_this_worker_is_told_what_it_serves(store: SqlStore):
    with pytest.raises(Misconfigured, match="serves the model 'tiny'"):
        providers(store).model(ModelSettings(provider="vllm", model="large"), seed=1)


@pytest.mark.skipif(bool(find_spec("vllm")), reason="vLLM is installed here")
def test_without_vllm_the_engine_says_how_to_get_it():
    with pytest.raises(Misconfigured, match=r"evoqueue\[gpu\]"):
        VllmEngine(Launch("/models/tiny", "tiny")).start()


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
    absent = VllmEngine(Launch("/nowhere", "tiny"))
    monkeypatch.setattr(gpu, "worker_engine", lambda: absent)
    monkeypatch.setattr(gpu, "context_or_exit", lambda: None)
    return absent


def test_a_worker_that_forks_does_not_load_an_engine(engine: VllmEngine):
    with pytest.raises(SystemExit, match="needs the pool `threads`"):
        gpu.prepare(Worker("prefork"))


def test_a_worker_whose_model_cannot_be_loaded_ends_and_says_why(
    engine: VllmEngine, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit, match="EVOQ_VLLM_MODEL"):
        gpu.prepare(Worker("threads"))

    assert "vllm: loading /nowhere" in capsys.readouterr().err


WORKER = """
import subprocess, sys, time
from app.adapters.model.vllm_orphans import Orphans

orphans = Orphans()
with orphans.adopted():
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
if sys.argv[1] == "released":
    orphans.release()
print(child.pid, flush=True)
time.sleep(60)
"""


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
    deadline = time.monotonic() + (1 if survives else 20)
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)

    assert alive(child) is survives
    if survives:
        child.kill()


def alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def test_further_fields_are_sampling_parameters_of_the_engine():
    engine = Canned(str)
    spec = ModelSpec("tiny", base_url=IN_PROCESS, extra_body={"top_k": 20, "ignore_eos": True})

    [reply] = VllmModel(spec, engine).complete([Prompt("", "a")])

    assert (engine.asked[0].sampling["top_k"], engine.asked[0].sampling["ignore_eos"]) == (20, True)
    assert reply.parameters["top_k"] == 20
