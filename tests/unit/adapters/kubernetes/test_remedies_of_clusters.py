"""What the errors about a cluster advise, carried out."""

import json
import random
from pathlib import Path
from typing import Any, cast

import pytest

from app.adapters.kubernetes.connection import connect
from app.adapters.kubernetes.jobs import Jobs
from app.adapters.sandbox.job_sandbox import JobSandbox, PodSettings
from app.config.cluster import KubernetesSettings
from app.domain.problem import Evaluator, EvaluatorBroken, Job
from app.ports.protocols import Misconfigured

SOURCE = b"def evaluate(path):\n    return 1.0\n"


def sandbox(**settings: Any) -> JobSandbox:
    return JobSandbox(
        cast(Jobs, None), PodSettings("default:1", 1.0, 4, KubernetesSettings(**settings))
    )


def job(files: dict[str, bytes], **fields: Any) -> Job:
    evaluator = Evaluator("x", {"evaluator.py": SOURCE, **files}, **fields)
    return Job(evaluator, "evaluate", ((".py", b""),))


def test_a_kubeconfig_that_the_variable_names_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("kubernetes")
    file = tmp_path / "config"
    monkeypatch.setenv("KUBECONFIG", str(file))
    with pytest.raises(Misconfigured, match=r"no Kubernetes cluster.*Name a file with KUBECONFIG"):
        connect(str(file))

    context = {"cluster": "c", "user": "u", "namespace": "mine"}
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": context}],
        "current-context": "x",
    }
    file.write_text(json.dumps(config))

    assert connect(str(file)).namespace == "mine"
    assert connect(str(file), "x", "other").namespace == "other"
    with pytest.raises(Misconfigured, match="no Kubernetes cluster"):
        connect(str(file), "no such context")


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "kubernetes", None)

    with pytest.raises(Misconfigured, match=r"pip install 'evoqueue\[kubernetes\]'"):
        connect("any")


@pytest.mark.parametrize("name", ["requirements.txt", "Dockerfile"])
def test_an_image_takes_the_place_of_requirements(name: str) -> None:
    files = {name: b"numpy\n" if name == "requirements.txt" else b"FROM scratch\n"}
    with pytest.raises(Misconfigured, match=r"name it with sandbox\.image"):
        sandbox().prepare(job(files).evaluator)

    assert sandbox()._spec(job(files, image="mine:1")).image == "mine:1"
    assert sandbox()._spec(job({})).image == "default:1"


def test_large_files_are_data_on_a_claim(tmp_path: Path) -> None:
    large = random.Random(1).randbytes(1 << 20)
    with pytest.raises(Misconfigured, match=r"Name the large ones as data \(problem.mounts\)"):
        sandbox()._spec(job({"large.bin": large}))

    (tmp_path / "large.bin").write_bytes(large)
    moved = job({}, mounts={"large": str(tmp_path / "large.bin")})
    with pytest.raises(EvaluatorBroken, match="name both with EVOQ_KUBERNETES__CLAIMS"):
        sandbox()._spec(moved)
    [claim] = sandbox(claims={"shared": str(tmp_path)})._spec(moved).claims
    assert (claim.name, claim.path, claim.sub_path, claim.read_only) == (
        "shared", "/sandbox/data/large", "large.bin", True,
    )  # fmt: skip
