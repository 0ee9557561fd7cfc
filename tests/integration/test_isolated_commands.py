"""Attacks of commands that run apart, as agents and as candidates: each is contained."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.adapters.isolated import CommandLimits
from app.adapters.model.agents import model as agent_model
from app.adapters.model.agents.model import AgentCommand, AgentModel
from app.adapters.sandbox.isolated_command import run_isolated
from app.domain.operator import Offspring, Prompt, Role
from app.domain.problem import EditRules
from app.domain.program import Program
from app.domain.replies.agent import OVERDUE, read_agent
from app.domain.source.edits import summary
from app.patterns.commands import Command
from app.patterns.errors import IsolationError
from app.patterns.isolated import IsolatedRunner
from app.patterns.racing import BestOfN, Speculate
from app.ports.protocols import Misconfigured
from tests.integration.pids_box import pids_box
from tests.model_endpoint import serving

KEY = "sk-held-by-this-process-alone"
FILES = {"src/a.py": "x = 1\n", "src/b.py": "y = 1\n"}
SMALL = CommandLimits(1024, 8 << 20, 32 << 20, 256, 64)


@dataclass(frozen=True)
class Attacked:
    """What an attack came to.

    Attributes:
      text: All that is shown of it: output, and the reason of its end.
      ended: Whether it was ended.
      taken: Path to text of what it changed and is taken from it.
    """

    text: str
    ended: bool
    taken: Mapping[str, str]


Attack = Callable[..., Attacked]


def as_agent(script: str, limits: CommandLimits = SMALL, seconds: float = 60.0) -> Attacked:
    program = Program.of_files(FILES)
    agent = AgentModel(AgentCommand(("python3", "-c", script), seconds=seconds), run_isolated)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agent_model, "_LIMITS", limits)
        try:
            [reply] = agent.complete([Prompt("", "", role=Role.AGENT, program=program)])
        except Misconfigured as error:
            pytest.skip(str(error))
    made = read_agent(reply, program, EditRules(evolve=("src/*.py",)), summary)
    files = made.program.files if isinstance(made, Offspring) else ()
    taken = {file.path: file.source for file in files if FILES[file.path] != file.source}
    return Attacked(reply.text, reply.finish == OVERDUE, taken)


def isolated(limits: CommandLimits = SMALL, **options: tuple[str, ...]) -> IsolatedRunner:
    try:
        return IsolatedRunner(limits=limits, **options)
    except IsolationError as error:
        pytest.skip(str(error))


def files_of(folder: Path) -> dict[str, str]:
    """Returns the texts of the regular files of a folder; a link is no file."""
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def candidate(folder: Path) -> Attack:
    def attack(script: str, limits: CommandLimits = SMALL, seconds: float = 60.0) -> Attacked:
        command, runner = Command(["python3", "-c", script]), isolated(limits)
        [result] = Speculate([command], runner=runner, timeout=seconds)(folder).all_results
        value = result.return_value or {"exit_status": -9, "output": ""}
        shown = f"{result.error}\n{value['output']}"
        found = files_of(folder)
        taken = {path: found[path] for path in found if FILES.get(path) != found[path]}
        assert result.success or found == FILES
        assert not [path for path in folder.rglob("*") if path.is_symlink()]
        return Attacked(shown, value["exit_status"] == -9, taken)

    return attack


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    for path, text in FILES.items():
        (made / path).parent.mkdir(parents=True, exist_ok=True)
        (made / path).write_text(text)
    return made


@pytest.fixture(params=["agent", "candidate"])
def attack(
    request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Attack]:
    """Runs a script apart, and afterwards requires that nothing of it is left."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    before = left_folders(folder)
    yield as_agent if request.param == "agent" else candidate(folder)
    new = left_folders(folder) - before
    # Tests in other processes have such folders, too, as long as they run.
    deadline = time.monotonic() + 60.0
    while left := {path for path in new if path.exists()}:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def left_folders(folder: Path) -> set[Path]:
    return {*folder.parent.iterdir(), *Path("/tmp").glob("evoq-agent-*")}


def test_it_sees_no_file_of_the_machine_and_no_other_branch(attack: Attack, tmp_path: Path) -> None:
    places = [tmp_path / "secret.txt", Path("/tmp/evoq-agent-of-another"), tmp_path / ".b.branches"]
    places[1].mkdir(exist_ok=True)
    places[2].mkdir()
    secrets = [places[0], places[1] / "secret.txt", places[2] / "secret.txt"]
    for secret in secrets:
        secret.write_text(KEY)
    script = f"""
import os, glob
for path in (*{[str(path) for path in (*secrets, Path(__file__))]!r}, "/etc/shadow",
             *glob.glob("/proc/[0-9]*/environ")):
    try:
        text = open(path, errors="replace").read()
    except OSError:
        continue
    print(path, "was read", text[:2000])
"""
    try:
        text = attack(script).text
    finally:
        for secret in secrets:
            secret.unlink()
        places[1].rmdir()
        places[2].rmdir()
    assert KEY not in text
    assert not [word for word in ("secret.txt was", "shadow was") if word in text]


def test_it_reaches_no_address(attack: Attack) -> None:
    with serving() as endpoint:
        port = endpoint.url.rpartition(":")[2].removesuffix("/v1")
        text = attack(f"""
import socket
for place in (("127.0.0.1", {port}), ("1.1.1.1", 443), ("169.254.169.254", 80)):
    try:
        socket.create_connection(place, 2)
    except OSError as error:
        print(place, type(error).__name__)
    else:
        print(place, "was reached")
""").text
    assert text.count("Error") + text.count("timeout") >= 3
    assert "was reached" not in text
    assert endpoint.asked == []


def test_it_cannot_write_without_end(attack: Attack) -> None:
    made = attack("""
import time
try:
    with open("large", "wb") as file:
        for _ in range(64):
            file.write(bytes(1 << 20))
            file.flush()
except OSError as error:
    print("one file:", error, flush=True)
for n in range(64):
    with open(f"part-{n}", "wb") as file:
        file.write(bytes(4 << 20))
time.sleep(60)
""")
    assert made.ended
    assert "wrote more than 32 MiB" in made.text
    assert not made.taken


@pytest.mark.parametrize(
    "script",
    [
        "for _ in range(3_000):\n    os.mkdir('d')\n    os.chdir('d')\ntime.sleep(60)",
        "for n in range(9_000):\n    open(str(n), 'w').close()\ntime.sleep(60)",
    ],
    ids=["nested", "many"],
)
def test_it_cannot_make_folders_or_files_without_end(attack: Attack, script: str) -> None:
    made = attack(f"import os, time\n{script}")
    assert made.ended
    assert "wrote more" in made.text


def test_it_starts_no_more_processes_than_it_may(attack: Attack) -> None:
    made = attack(
        """from subprocess import Popen
started = []
try:
    for _ in range(60):
        started.append(Popen(["sleep", "60"]))
except OSError as error:
    print("refused after", len(started), error)
for process in started:
    process.kill()
""",
        CommandLimits(1024, 8 << 20, 64 << 20, 256, 20),
    )
    assert int(made.text.split("refused after ")[1].split()[0]) < 20


@pytest.mark.timing
def test_a_fork_bomb_is_ended(attack: Attack) -> None:
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n"
    with pids_box() as box:
        assert attack(bomb, CommandLimits(1024, 8 << 20, 64 << 20, 256, 20), 4.0).ended
        until = time.monotonic() + 10
        while box.tasks() > 20 and time.monotonic() < until:
            time.sleep(0.05)
        assert box.tasks() <= 20


@pytest.mark.parametrize("rests", [True, False])
def test_no_process_of_it_is_left(attack: Attack, rests: bool) -> None:
    marker = f"evoq-marker-of-a-command-{os.getpid()}"
    made = attack(
        f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)", "{marker}"],
                 start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
open("src/a.py", "w").write("x = 8\\n")
print("begun", flush=True)
time.sleep(300 if {rests} else 0)
""",
        seconds=3.0 if rests else 60.0,
    )
    assert made.ended is rests
    assert made.taken == ({} if rests else {"src/a.py": "x = 8\n"})
    assert processes_with(marker) == []


@pytest.mark.parametrize(
    "script",
    [
        "os.unlink('src/a.py'); os.symlink('/etc/passwd', 'src/a.py')",
        "os.rename('src', 'old'); os.symlink('/etc', 'src')",
        "os.symlink('..', 'src/up'); os.symlink('up/../..', 'src/out')",
        "os.unlink('src/a.py'); os.mkfifo('src/a.py')",
        "open(b'src/bad\\xff.py', 'w').write('z = 1\\n')",
        "os.rename(os.getcwd(), '../old'); os.symlink('/etc', os.getcwd())",
    ],
)
def test_no_link_out_and_nothing_but_files_is_taken(attack: Attack, script: str) -> None:
    made = attack(f"import os; {script}")
    assert "root:" not in made.text
    assert made.taken == {}


def test_folders_that_cannot_be_read_are_removed(attack: Attack) -> None:
    attack("""import os
os.makedirs("secret/inside")
os.chmod("secret", 0)
for _ in range(1500):
    os.mkdir("d")
    os.chdir("d")
""")


def test_a_candidate_that_gains_the_rights_of_its_owner_is_refused(folder: Path) -> None:
    script = "import os; os.chmod('src/a.py', 0o4755); open('src/b.py', 'w').write('y = 2\\n')"
    made = candidate(folder)(script)
    assert "the rights of its owner" in made.text or "not permitted" in made.text
    assert made.taken == {}


def test_candidates_of_another_identity_leave_the_owners_as_they_were(folder: Path) -> None:
    os.chmod(folder / "src" / "b.py", 0o600)
    if os.geteuid() == 0:
        os.chown(folder / "src" / "b.py", 12, 13)
    owners = [(path.stat().st_uid, path.stat().st_gid) for path in sorted(folder.rglob("*"))]
    script = "open('src/b.py', 'a').write('z = 1\\n'); open('src/c.py', 'w').write('n')"
    taken = candidate(folder)(script).taken
    assert taken == {"src/b.py": "y = 1\nz = 1\n", "src/c.py": "n"}
    (folder / "src" / "c.py").unlink()
    found = [(path.stat().st_uid, path.stat().st_gid) for path in sorted(folder.rglob("*"))]
    assert (found, (folder / "src" / "b.py").stat().st_mode & 0o777) == (owners, 0o600)


def test_losers_that_run_apart_end_at_once(folder: Path) -> None:
    marker = f"evoq-marker-of-a-loser-{os.getpid()}"
    slow = Command(["python3", "-c", "import time; time.sleep(300)", marker])
    quick = Command(["python3", "-c", "import time; time.sleep(1.5); print(time.time())"])

    def ending_seconds() -> float:
        outcome = Speculate([slow, slow, quick], runner=isolated())(folder)
        ended = time.time()
        assert outcome.winner is not None
        assert outcome.winner.branch_index == 2
        assert processes_with(marker) == []
        assert not (folder.parent / f".{folder.name}.branches").exists()
        return ended - float(outcome.winner.return_value["output"])

    # A time that a stall has lengthened is measured again.
    assert any(ending_seconds() < 5.0 for _ in range(3))


def test_a_candidate_sees_no_branch_but_its_own(folder: Path) -> None:
    waits = Command(["sh", "-c", "sleep 1; ls -d ../../*/tree | wc -l"])
    outcome = BestOfN([waits, waits], runner=isolated(), commit=False)(folder)
    shown = [result.return_value["output"] for result in outcome.all_results]
    assert shown == ["1\n", "1\n"]


def test_what_evaluates_runs_apart_too(folder: Path) -> None:
    os.environ["EVOQ_TEST_SECRET"] = KEY
    write = Command(["sh", "-c", "echo $BRANCHING_ATTEMPT >src/a.py"]).given(BRANCHING_ATTEMPT="7")
    score = Command(["sh", "-c", 'cat src/a.py; echo "<$EVOQ_TEST_SECRET>" >&2'])
    try:
        outcome = BestOfN([write], evaluate=score, runner=isolated(), commit=False)(folder)
    finally:
        del os.environ["EVOQ_TEST_SECRET"]
    assert outcome.winner is not None, outcome.all_results
    assert outcome.winner.score == 7.0


def test_a_named_host_is_reached_through_the_proxy_and_no_other(folder: Path) -> None:
    with serving() as endpoint, serving() as other:
        port, wrong = (
            each.url.rpartition(":")[2].removesuffix("/v1") for each in (endpoint, other)
        )
        script = f"""
import urllib.request, urllib.error
for port in ({port}, {wrong}):
    request = urllib.request.Request(f"http://127.0.0.1:{{port}}/v1/x", b"{{}}")
    try:
        print(port, urllib.request.urlopen(request).status)
    except urllib.error.HTTPError as error:
        print(port, error.code)
"""
        runner = isolated(hosts=(f"127.0.0.1:{port}",))
        [result] = Speculate([Command(["python3", "-c", script])], runner=runner)(
            folder
        ).all_results
    assert f"{port} 200\n{wrong} 403\n" in result.return_value["output"], result
    assert (len(endpoint.asked), len(other.asked)) == (1, 0)


def test_a_callable_cannot_run_apart(folder: Path) -> None:
    [result] = Speculate([lambda path: True], runner=isolated())(folder).all_results
    assert "cannot be kept apart" in result.error


def processes_with(marker: str) -> list[str]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_text()
        except OSError:
            continue
        if marker in line and f"/{os.getpid()}/" not in f"/{pid}/":
            found.append(pid)
    return found
