"""What goes to another machine and comes back: archives, documents and patches."""

import base64
import json
import os
import select
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest

from app.patterns import patch, shipping
from app.patterns.budget import CandidateBudget
from app.patterns.commands import Command
from app.patterns.errors import MountError, ProcessBranchError
from app.patterns.work import Work, read_answer
from app.patterns.worker import NONCE
from app.patterns.workspace import Workspace


def work(folder: Path, **fields: object) -> Work:
    return Work(folders=(folder,), home=folder.parent / "home", **fields)  # type: ignore[arg-type]


def test_the_archive_does_a_task_with_the_standard_library_alone(tmp_path: Path) -> None:
    (tmp_path / "worker.pyz").write_bytes(shipping.archive())
    folder = tmp_path / "tree"
    folder.mkdir()
    candidate = Command(["/bin/sh", "-c", "echo made > made; echo 0.5 >&3; env"])
    document = shipping.write(work(folder, candidate=candidate)) | {"folders": [str(folder)]}
    (tmp_path / "task.pkl").write_text(json.dumps(document))
    done = subprocess.run(
        [sys.executable, "-I", "-S", tmp_path / "worker.pyz", tmp_path / "task.pkl"],
        env={NONCE: "word", "PATH": "/bin:/usr/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    mark, nonce, said = done.stdout.split()
    assert (mark, nonce) == ("@@EVOQ", "word")
    answer = read_answer(shipping.Shipped(None).finish(base64.b64decode(said).decode()))
    assert (answer.success, answer.score) == (True, 0.5)
    # A candidate cannot frame a result of its own.
    assert "word" not in answer.value["output"]
    assert (folder / "made").exists()
    assert shipping.archive() == shipping.archive()


def test_a_result_is_written_whole_into_a_descriptor_that_does_not_wait(tmp_path: Path) -> None:
    """Some programs leave the output that they inherit so; a pipe holds less than this result."""
    folder = tmp_path / "tree"
    folder.mkdir()

    def answer(path: Path) -> tuple[bool, str]:
        return False, "x" * 200_000

    document = shipping.write(work(folder, candidate=answer)) | {"folders": [str(folder)]}
    (tmp_path / "task.pkl").write_text(json.dumps(document))
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with subprocess.Popen(
        [sys.executable, "-m", "app.patterns.worker", tmp_path / "task.pkl"],
        env={**os.environ, NONCE: "word"}, stdout=writer,
    ) as running, open(reader, "rb") as read:  # fmt: skip
        os.close(writer)
        while not select.select([read], [], [], 0.1)[0] and running.poll() is None:
            pass
        time.sleep(0.2)
        said = read.read().split()[2]
    assert running.returncode == 0
    document = json.loads(base64.b64decode(said))
    assert answer(folder)[1] in document["said"]


def test_a_worker_says_what_it_cannot_read(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "app.patterns.worker", tmp_path / "absent"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{tmp_path}/absent: no task can be read there" in done.stderr


def test_a_missing_cloudpickle_is_named_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(ProcessBranchError, match=r"pip install 'evoqueue\[kubernetes\]'"):
        shipping.write(work(tmp_path, candidate=os.path.isdir))
    # Commands need none.
    assert shipping.write(work(tmp_path, candidate=Command(["true"])))["commands"]


def test_a_module_that_is_missing_there_is_named() -> None:
    pickled = base64.b64encode(b"cabsent_module\nfunction\n.").decode()
    document = {"budget": None, "seconds": None, "pickle": pickled, "python": ""}
    said = shipping.Shipped(None).finish(shipping.do(document, (Path("/"),)))
    with pytest.raises(ProcessBranchError, match=r"absent_module.*register_pickle_by_value"):
        read_answer(said)


def test_work_that_never_answers_spends_all_that_was_reserved_for_it() -> None:
    budget, silent = CandidateBudget(5), CandidateBudget(5)
    shipped = shipping.Shipped(budget)
    shipping.Shipped(silent)
    assert (budget.left, silent.left) == (0, 0)
    shipped.finish(json.dumps({"said": "{}", "left": 3}))
    assert budget.left == 3
    forged = shipping.Shipped(budget)
    forged.finish(json.dumps({"said": "{}", "left": 1000}))
    assert budget.left == 3


def patch_of(*entries: tuple[str, str, int, str], removed: tuple[str, ...] = ()) -> str:
    document = json.dumps({"removed": removed, "entries": entries}).encode()
    return base64.b64encode(zlib.compress(document)).decode()


@pytest.mark.parametrize(
    "hostile",
    [
        patch_of(("../out", "file", 0o644, "")),
        patch_of(("/tmp/out", "file", 0o644, "")),
        patch_of(("link/out", "file", 0o644, "")),
        patch_of(("new", "link", 0, "/etc")),
        patch_of(("new", "link", 0, "../..")),
        patch_of(("new", "link", 0, "sub/../..")),
        patch_of(("here", "link", 0, "."), ("up", "link", 0, "here/../out")),
        patch_of(("sub", "link", 0, "link"), ("sub/x", "file", 0o644, "")),
        patch_of(("device", "char", 0o644, "")),
        patch_of(removed=("link/inside",)),
        patch_of(removed=("..",)),
        "no base64",
        base64.b64encode(zlib.compress(b"0" * 5000)).decode(),
    ],
)
def test_a_hostile_patch_reaches_nothing_outside(tmp_path: Path, hostile: str) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    (folder / "sub").mkdir(parents=True)
    outside.mkdir()
    (outside / "inside").touch()
    (folder / "link").symlink_to(outside)
    with pytest.raises(patch.PatchError):
        patch.apply(hostile, str(folder), most=1000)
    assert os.listdir(outside) == ["inside"]
    assert sorted(os.listdir(tmp_path)) == ["folder", "outside"]


def test_a_patch_makes_one_folder_equal_to_another(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        (folder / "sub" / "deep").mkdir(parents=True)
        (folder / "sub" / "file").write_text("old")
        (folder / "kept").write_text("kept")
        (folder / "turned").mkdir()
        (folder / "turned" / "inside").touch()
    before = patch.manifest(str(one))
    assert patch.make(before, str(other)) == ""
    (other / "sub" / "file").write_bytes(b"\xff\x00")
    (other / "sub" / "file").chmod(0o750)
    (other / "sub" / "deep").rmdir()
    (other / "turned" / "inside").unlink()
    (other / "turned").rmdir()
    (other / "turned").write_text("a file now")
    (other / "new").mkdir(mode=0o700)
    (other / "new" / "link").symlink_to("../kept")
    patch.apply(patch.make(before, str(other)), str(one))
    assert patch.manifest(str(one)) == patch.manifest(str(other))


def test_what_no_patch_holds_is_named_and_removed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(patch.PatchError, match="cannot be sent elsewhere; remove it"):
        patch.pack(str(tmp_path))
    (tmp_path / "pipe").unlink()
    assert patch.make({}, str(tmp_path)) == ""
    assert patch.pack(str(tmp_path))


def test_a_group_is_at_work_in_one_process_and_outlives_it(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "kept.txt").write_text("kept")
    read, written = os.pipe()
    child = os.fork()
    if child == 0:
        branch = Workspace(folder, shared=True, group="one").branch()
        (branch.path / "made.txt").write_text("made")
        os.write(written, b".")
        signal.pause()
    os.read(read, 1)
    with pytest.raises(MountError, match="or give another name"):
        Workspace(folder, shared=True, group="one")
    Workspace(folder, shared=True, group="other").close()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    for descriptor in (read, written):
        os.close(descriptor)
    # A workspace of no group leaves its branches alone.
    Workspace(folder).close()
    with Workspace(folder, shared=True, group="one") as again, again.branch() as branch:
        assert (branch.path / "made.txt").read_text() == "made"
    assert sorted(os.listdir(folder)) == ["kept.txt", "made.txt"]
    assert os.listdir(tmp_path) == ["folder"]
