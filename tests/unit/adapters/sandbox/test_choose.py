"""Which sandbox "auto" is where an engine answers that lacks the default image."""

from pathlib import Path

import pytest

from app.adapters.sandbox import choose as module
from app.adapters.sandbox.docker import DockerSandbox
from app.adapters.sandbox.process import ProcessSandbox
from app.config.settings import SandboxSettings

INFRA = Path(__file__).resolve().parents[4] / "infra"


@pytest.mark.parametrize("may_build", [False, True])
def test_auto_builds_an_image_only_where_it_may(monkeypatch: pytest.MonkeyPatch, may_build: bool):
    built: list[Path] = []
    shown: list[str] = []
    monkeypatch.setattr(module, "engine_answers", lambda seconds: True)
    monkeypatch.setattr(module, "remove_orphans", lambda *_: 0)
    monkeypatch.setattr(module.Images, "has_default", lambda self: False)
    monkeypatch.setattr(module.Images, "build_default", lambda self, folder: built.append(folder))

    sandbox = module.choose(
        SandboxSettings(), infra=INFRA, show_progress=shown.append, may_build=may_build
    )

    assert isinstance(sandbox, DockerSandbox if may_build else ProcessSandbox)
    assert len(built) == may_build
    assert may_build or "an engine answers, but it has no image" in shown[0]
    sandbox.close()
