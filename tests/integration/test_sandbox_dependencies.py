"""Problems that bring dependencies: an image in an engine, an environment without one."""

import io
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from app.adapters.sandbox import installation
from app.adapters.sandbox.docker import ContainerSettings, DockerSandbox
from app.adapters.sandbox.engine import engine_client
from app.adapters.sandbox.environments import Environments
from app.adapters.sandbox.images import LABEL_OF_PROBLEM, Images
from app.adapters.sandbox.installation import Installation
from app.adapters.sandbox.orphans import remove_orphans
from app.adapters.sandbox.pool import PoolSettings
from app.adapters.sandbox.process import ProcessSandbox
from app.domain.problem import Evaluator, EvaluatorBroken, Job, Mode
from app.ports.protocols import Misconfigured
from tests.contracts.sandbox import LIMITS, SQUARE, metrics
from tests.integration.test_sandbox_docker import OWNER, require_engine

POOL = PoolSettings(max_sandboxes=1, spares=0)
CONTAINERS = ContainerSettings(owner=OWNER)
OWN_BUILDS = {"label": ["evoqueue.sandbox=build", f"evoqueue.owner={OWNER}"]}
USES_TOMLI_W = b"""
import tomli_w

def evaluate(path):
    return {"combined_score": float(len(tomli_w.dumps({"a": 1})))}
"""
USES_MARMOT = b"""
import marmot

def evaluate(path):
    return {"combined_score": marmot.WEIGHT}
"""
USES_BOTH = b"""
import marmot, tomli_w

def evaluate(path):
    return {"combined_score": float(len(tomli_w.dumps({"a": 1}))), "weight": marmot.WEIGHT}
"""
PROGRAM_USES_IT = b"import tomli_w\ndef solve(x):\n    return 1\n"
WHEEL = "marmot-1.0-py3-none-any.whl"


def evaluator(text: bytes, digest: str, **files: bytes) -> Evaluator:
    named = {name.replace("_dot_", "."): contents for name, contents in files.items()}
    return Evaluator(digest, {"evaluator.py": text, **named})


def job(of: Evaluator, program: bytes = SQUARE) -> Job:
    return Job(of, "evaluate", ((".py", program),), LIMITS, Mode.GUARDED)


TOMLI_W = evaluator(
    USES_TOMLI_W, "tomli_w", requirements_dot_txt=f"# {OWNER}\ntomli_w==1.2.0\n".encode()
)


def wheel() -> bytes:
    """Returns a package that needs no registry: one module and what makes it a wheel."""
    about = "Metadata-Version: 2.1\nName: marmot\nVersion: 1.0\n"
    kind = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("marmot.py", "WEIGHT = 4.5\n")
        archive.writestr("marmot-1.0.dist-info/METADATA", about)
        archive.writestr("marmot-1.0.dist-info/WHEEL", kind)
        archive.writestr("marmot-1.0.dist-info/RECORD", "")
    return packed.getvalue()


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips where pip cannot fetch a package."""
    folder = tmp_path_factory.mktemp("fetched")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
    try:
        done = subprocess.run([*command, "tomli_w==1.2.0"], capture_output=True, timeout=60)
    except subprocess.TimeoutExpired:
        pytest.skip("pip reaches no package registry within 60 s")
    if done.returncode != 0:
        pytest.skip(f"pip reaches no package registry: {done.stderr.decode()[-200:]}")


@cache
def two_packages() -> Evaluator:
    """Returns an evaluator that needs one package of the registry and one from its own folder."""
    wanted = f"# {OWNER}\ntomli_w==1.2.0\n./{WHEEL}\n".encode()
    of = evaluator(USES_BOTH, "two packages", requirements_dot_txt=wanted)
    return replace(of, files={**of.files, WHEEL: wheel()})


@dataclass(frozen=True)
class Made:
    """An environment of `two_packages`: who made it, what they said, and the interpreters."""

    workers: list[Environments]
    said: list[str]
    interpreters: set[str]


@pytest.fixture(scope="module")
def made(registry: None, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Made for three workers at once, with a small package in place of those of every environment:
    to find and unpack NumPy and SciPy is most of an installation.

    What tests do not import is not compiled.
    """
    folder = tmp_path_factory.mktemp("cache")
    said: list[str] = []
    workers = [Environments(folder=folder, show_progress=said.append) for _ in range(3)]
    with pytest.MonkeyPatch.context() as patched, ThreadPoolExecutor(3) as threads:
        patched.setenv("PIP_NO_COMPILE", "1")
        patched.setattr(installation, "_ALWAYS", ("iniconfig",))
        found = set(threads.map(lambda one: one.interpreter(two_packages()), workers))
    return Made(workers, said, found)


def test_no_environment_is_begun_where_nothing_would_isolate_it(tmp_path: Path) -> None:
    made = Environments(folder=tmp_path)
    sandbox = ProcessSandbox(POOL, environments=made, levels=("bare",), engine=())
    with pytest.raises(Misconfigured, match=r"sandbox\.unisolated_builds=true"):
        sandbox.prepare(TOMLI_W)
    sandbox.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("level", ["privileged", "unprivileged", "bare"])
def test_a_problem_finds_its_packages_in_an_environment(level: str, made: Made) -> None:
    environments = made.workers[0]
    environments.unisolated = level == "bare"
    sandbox = ProcessSandbox(POOL, environments=environments, levels=(level, "bare"), engine=())
    outcome = sandbox.run(job(two_packages()))
    assert metrics(outcome) == {"combined_score": 6.0, "weight": 4.5}
    assert sandbox.run(job(two_packages(), PROGRAM_USES_IT)).failure is None
    sandbox.close()
    assert not any("tomli_w" in line for line in made.said)
    [announced] = [line for line in made.said if ": making" in line]
    assert "tomli_w" in Path(announced.split()[-1]).read_text()


@pytest.mark.slow
def test_one_environment_is_made_for_many_workers(made: Made) -> None:
    [python] = made.interpreters
    assert sum(": making" in line for line in made.said) == 1
    assert sum("waiting" in line for line in made.said) == 2
    imported = subprocess.run([python, "-c", "import iniconfig, tomli_w"], capture_output=True)
    assert imported.returncode == 0, imported.stderr


def test_a_failed_installation_is_the_problems_fault_and_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("EVOQ_SECRET", "hunter2")
    said: list[str] = []
    environments = Environments(folder=tmp_path, show_progress=said.append)
    sandbox = ProcessSandbox(POOL, environments=environments)
    with pytest.raises(EvaluatorBroken) as caught:
        sandbox.run(job(TOMLI_W))
    for words in ("requirements.txt", "No matching distribution", "sandbox.image"):
        assert words in str(caught.value)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".lock", ".log"]
    [announced] = said
    assert "No matching distribution" in Path(announced.split()[-1]).read_text()
    with pytest.raises(EvaluatorBroken):
        sandbox.run(job(TOMLI_W))  # remembered, so that waiting trials do not repeat it
    assert sum(": making" in line for line in said) == 1
    sandbox.close()


def test_a_dockerfile_without_docker_says_what_to_do(tmp_path: Path) -> None:
    of = evaluator(USES_MARMOT, "dockerfile", Dockerfile=b"FROM evoqueue-sandbox:1\n")
    environments = Environments(folder=tmp_path)
    with pytest.raises(EvaluatorBroken, match="Start Docker, or put"):
        environments.interpreter(of)
    assert environments.interpreter(replace(of, image="any")) == sys.executable


@pytest.mark.timing
def test_an_environment_of_a_killed_worker_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Installation, "run", lambda *_: None)  # what it installs is no matter here
    python = Path(Environments(folder=tmp_path).interpreter(TOMLI_W))
    home = python.parents[1]
    for path in (home, Path(f"{home}.complete")):  # as before it was complete
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    python.parent.mkdir(parents=True)
    python.write_text("not an interpreter")
    (home / "half made").touch()

    assert Environments(folder=tmp_path).interpreter(TOMLI_W) == str(python)

    assert not (home / "half made").exists()
    assert subprocess.run([python, "-c", "pass"]).returncode == 0


# With an engine.


def problem_images() -> set[str]:
    with engine_client(20.0) as engine:
        rows = engine.images(filters={"label": [LABEL_OF_PROBLEM, f"evoqueue.owner={OWNER}"]})
    return {tag for row in rows for tag in row["RepoTags"] or ()}


@pytest.fixture
def no_images() -> None:
    """Removes images of earlier tests of this process, so that each test builds its own."""
    require_engine()
    with engine_client(60.0) as engine:
        for tag in problem_images():
            engine.remove_image(tag, force=True)


@pytest.mark.docker
@pytest.mark.slow
def test_a_problem_finds_its_packages_in_an_image(registry: None, no_images: None) -> None:
    said: list[str] = []
    for _ in range(2):
        sandbox = DockerSandbox(
            POOL, settings=CONTAINERS, images=Images(owner=OWNER, show_progress=said.append)
        )
        outcome = sandbox.run(job(two_packages()))
        assert metrics(outcome) == {"combined_score": 6.0, "weight": 4.5}
        assert sandbox.run(job(two_packages(), PROGRAM_USES_IT)).failure is None
        sandbox.close()
    assert sum(": building" in line for line in said) == 1
    assert any("Successfully installed" in line and "tomli" in line for line in said)
    assert len(problem_images()) == 1


DOCKERFILE = f"""
FROM evoqueue-sandbox:1
COPY marmot.py /opt/marmot/marmot.py
RUN sleep 1 && echo {OWNER}
ENV PYTHONPATH=/nowhere PATH=/opt/python:/usr/local/bin:/usr/bin:/bin
RUN python3 -c "import site, pathlib; pathlib.Path(site.getsitepackages()[0], 'm.pth').write_text('/opt/marmot')"
""".encode()  # noqa: E501  # one instruction a line
PACKAGES = tuple(f"/usr/local/lib/python3.13/{name}-packages" for name in ("site", "dist"))
"""Where the default image's interpreter, of Python or of Debian, looks for packages."""
MARMOT = evaluator(
    b"import shutil\n" + USES_MARMOT,
    "image",
    Dockerfile=DOCKERFILE,
    marmot_dot_py=b"WEIGHT = 7.5\n",
)


@pytest.mark.docker
@pytest.mark.slow
def test_one_image_is_built_for_many_workers(no_images: None) -> None:
    said: list[str] = []
    workers = [Images(owner=OWNER, show_progress=said.append) for _ in range(3)]
    with ThreadPoolExecutor(3) as threads:
        assert len(set(threads.map(lambda one: one.of(MARMOT), workers))) == 1
    assert sum(": building" in line for line in said) == 1
    assert sum("waiting" in line for line in said) == 2
    with engine_client(20.0) as engine:
        assert engine.containers(all=True, filters=OWN_BUILDS) == []


@pytest.mark.docker
@pytest.mark.slow
def test_an_image_that_was_pruned_is_built_again(no_images: None) -> None:
    sandbox = DockerSandbox(
        PoolSettings(max_sandboxes=1, spares=0, max_trials=1), settings=CONTAINERS
    )
    copied = "".join(f"COPY marmot.py {folder}/marmot.py\n" for folder in PACKAGES)
    files = {**MARMOT.files, "Dockerfile": f"FROM evoqueue-sandbox:1\n{copied}".encode()}
    of = replace(MARMOT, digest="pruned", files=files)
    assert metrics(sandbox.run(job(of))) == {"combined_score": 7.5}
    with engine_client(60.0) as engine:
        (tag,) = problem_images()
        engine.remove_image(tag, force=True)
    assert metrics(sandbox.run(job(of))) == {"combined_score": 7.5}
    sandbox.close()


@pytest.mark.timing
@pytest.mark.docker
@pytest.mark.slow
def test_the_build_of_a_killed_worker_does_not_block_the_next(no_images: None) -> None:
    text = """
import sys
sys.path.insert(0, {root!r})
from app.adapters.sandbox.images import Images
from tests.integration.test_sandbox_dependencies import MARMOT, OWNER
Images(owner=OWNER, show_progress=lambda line: print(line, flush=True)).of(MARMOT)
"""
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", text.format(root=root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert "building" in worker.stdout.readline()
        worker.kill()
    assert Images(owner=OWNER).of(MARMOT) in problem_images()
    assert remove_orphans(20.0, OWNER) == 0


@pytest.mark.docker
def test_a_failed_build_is_the_problems_fault_and_shows_its_output(no_images: None) -> None:
    text = b"FROM evoqueue-sandbox:1\nRUN echo the marmot sleeps && exit 3\n"
    of = evaluator(USES_MARMOT, "fails", Dockerfile=text)
    sandbox = DockerSandbox(POOL, settings=CONTAINERS)
    with pytest.raises(EvaluatorBroken) as caught:
        sandbox.run(job(of))
    for words in ("Dockerfile", "the marmot sleeps", "3", "sandbox.image"):
        assert words in str(caught.value)
    sandbox.close()
    with engine_client(20.0) as engine:
        assert engine.containers(all=True, filters=OWN_BUILDS) == []
