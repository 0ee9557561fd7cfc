"""Container images: the default one, and one for each problem that brings dependencies."""

import contextlib
import io
import re
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from docker import APIClient
from docker.errors import APIError
from docker.types import LogConfig
from docker.utils.config import load_general_config
from docker.utils.proxy import ProxyConfig
from docker.utils.socket import frames_iter

from app.adapters.sandbox.dependencies import (
    DOCKERFILE,
    Dependencies,
    failed,
    from_dockerfile,
    from_requirements,
)
from app.adapters.sandbox.engine import DEFAULT_IMAGE, engine_client, has_image, image_id, remove
from app.adapters.sandbox.environments import ShowProgress, no_progress
from app.adapters.sandbox.orphans import BUILD, LABEL, OWNER, abandoned, labels
from app.domain.problem import Evaluator, EvaluatorBroken
from app.domain.secrets import redacted
from app.ports.protocols import Unavailable

LABEL_OF_PROBLEM = "evoqueue.problem"

_REPOSITORY = "evoqueue-problem"
_CONFLICT = 409
_COLOUR = re.compile("\x1b\\[[0-9;]*m")
_LOOKING_SECONDS = 0.5
_REMEMBERED_SECONDS = 60.0
_FOLDER = "/opt/problem"
_PIP = (
    *("python3", "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check"),
    *("--progress-bar", "off", "-r"),
)
_LONGEST_LINE_BYTES = 1 << 16
_MEMORY_BYTES = 8 << 30
_PROCESSES = 512


class Images:
    """Images on one engine, each built once for all of its workers.

    Args:
      default: What sandboxes are made from, where the problem names no image and brings nothing.
      owner: The deployment that builds, which its images and locks are labelled with.  Another
        deployment uses an image with the same contents all the same.
      show_progress: Gets the progress of builds.
      engine_seconds: Longest time the engine may take to answer one request.
      build_seconds: Longest time a build may take.
    """

    def __init__(
        self,
        default: str = DEFAULT_IMAGE,
        *,
        owner: str = "",
        show_progress: ShowProgress = no_progress,
        engine_seconds: float = 20.0,
        build_seconds: float = 1800.0,
    ) -> None:
        self._default = default
        self._owner = owner
        self._show_progress = show_progress
        self._engine_seconds = engine_seconds
        self._build_seconds = build_seconds
        self._known: dict[str, str] = {}
        self._broken: dict[str, tuple[float, EvaluatorBroken]] = {}
        self._building = threading.Lock()

    def of(self, evaluator: Evaluator) -> str:
        """Returns the image that sandboxes of a problem are made from; it may take minutes once.

        The image the problem names comes first, then its Dockerfile, then its requirements.

        Raises:
          EvaluatorBroken: The dependencies cannot be installed.
          Unavailable: The engine does not answer, or the build takes too long.
        """
        if evaluator.image:
            return evaluator.image
        if evaluator.digest not in self._known:
            with self._building:
                if evaluator.digest not in self._known:
                    self._known[evaluator.digest] = self._ensure(evaluator)
        return self._known[evaluator.digest]

    def identity(self, evaluator: Evaluator) -> str:
        """Returns the id of the image that `of` names, which a rebuilt image changes.

        Raises:
          EvaluatorBroken, Unavailable: See `of`.
        """
        image = self.of(evaluator)
        with engine_client(self._engine_seconds) as engine:
            return image_id(engine, image)

    def forget(self, evaluator: Evaluator) -> None:
        """Makes the next `of` check whether the image still exists."""
        self._known.pop(evaluator.digest, None)

    def has_default(self) -> bool:
        """Returns whether the engine has the default image.

        Raises:
          Unavailable: The engine does not answer.
        """
        with engine_client(self._engine_seconds) as engine:
            return has_image(engine, self._default)

    def build_default(self, folder: Path) -> None:
        """Builds the default image from the Dockerfile in `folder`, which takes minutes once.

        Raises:
          Unavailable: The engine does not answer, or the build fails.
        """
        self._show_progress(f"sandbox: building the image {self._default} from {folder}")
        output: list[str] = []
        with engine_client(self._build_seconds) as engine:
            lines = engine.build(path=str(folder), tag=self._default, rm=True, decode=True)
            error = self._follow(lines, output)
        if error:
            raise Unavailable(f"the image {self._default} cannot be built: {error}")

    def _ensure(self, evaluator: Evaluator) -> str:
        files = evaluator.files
        wanted = from_dockerfile(files) or from_requirements(files)
        if wanted is None:
            return self._default
        with engine_client(self._engine_seconds) as engine:
            base = "" if wanted.entry == DOCKERFILE else image_id(engine, self._default)
            digest = wanted.digest(base)
            tag = f"{_REPOSITORY}:{digest}"
            if has_image(engine, tag):
                return tag
        at, error = self._broken.get(digest, (0.0, None))
        if error is not None and time.monotonic() - at < _REMEMBERED_SECONDS:
            raise error
        try:
            self._build_once(wanted, digest, tag)
        except EvaluatorBroken as caught:
            self._broken[digest] = (time.monotonic(), caught)
            raise
        return tag

    def _build_once(self, wanted: Dependencies, digest: str, tag: str) -> None:
        """Builds an image unless another worker of this engine does, or has by now.

        The lock is a container that is never started: its name is unique on the engine, whichever
        machine a builder is on, and a builder that died is known by its labels.
        """
        deadline = time.monotonic() + self._build_seconds
        waiting = False
        while True:
            with engine_client(self._engine_seconds) as engine:
                if has_image(engine, tag):
                    return
                lock = self._lock(engine, f"evoqueue-build-{digest}")
            if lock:
                break
            if not waiting:
                self._show_progress(f"sandbox: another worker builds {tag}; waiting for it")
            waiting = True
            if time.monotonic() > deadline:
                raise Unavailable(f"another worker still builds {tag}")
            time.sleep(_LOOKING_SECONDS)
        try:
            self._build(wanted, tag)
        finally:
            with engine_client(self._engine_seconds) as engine:
                remove(engine, lock)

    def _lock(self, engine: APIClient, name: str) -> str:
        """Returns the id of the lock's container; "" if another worker holds it."""
        try:
            made = engine.create_container(
                self._default, command=["true"], name=name, labels=labels(self._owner, BUILD)
            )
        except APIError as error:
            if error.status_code != _CONFLICT:
                raise
            filters = {"label": LABEL, "name": name}
            for row in engine.containers(all=True, filters=filters):
                if abandoned(engine, row):
                    remove(engine, row["Id"])
            return ""
        return str(made["Id"])

    def _build(self, wanted: Dependencies, tag: str) -> None:
        self._show_progress(f"sandbox: building {tag} from the problem's {wanted.entry}")
        began = time.monotonic()
        output: list[str] = []
        named = {LABEL_OF_PROBLEM: tag.partition(":")[2], OWNER: self._owner}
        with engine_client(self._build_seconds) as engine:
            if wanted.entry == DOCKERFILE:
                lines = engine.build(
                    fileobj=_archive(wanted),
                    custom_context=True,
                    tag=tag,
                    rm=True,
                    forcerm=True,
                    decode=True,
                    labels=named,
                    container_limits={"memory": _MEMORY_BYTES, "memswap": _MEMORY_BYTES},
                )
                error = self._follow(lines, output)
            else:
                error = self._install(engine, wanted, named, output)
        if error:
            raise failed(wanted.entry, f"an image on {self._default}", [*output, error])
        self._show_progress(f"sandbox: built {tag} in {time.monotonic() - began:.0f} s")

    def _install(
        self, engine: APIClient, wanted: Dependencies, named: dict[str, str], output: list[str]
    ) -> str:
        """Installs requirements in a container that becomes the image; returns the error, or "".

        An engine bounds the processes of a container, and not those of a build.
        """
        container = engine.create_container(
            self._default,
            entrypoint=["env", *_proxies(), *_PIP],
            command=[wanted.entry],
            working_dir=_FOLDER,
            labels=labels(self._owner, BUILD),
            # Docker's proxies would otherwise become part of the image.
            use_config_proxy=False,
            host_config=engine.create_host_config(
                cap_drop=["ALL"],
                security_opt=["no-new-privileges"],
                pids_limit=_PROCESSES,
                mem_limit=_MEMORY_BYTES,
                memswap_limit=_MEMORY_BYTES,
                ipc_mode="private",
                log_config=LogConfig(type="none"),
            ),
        )["Id"]
        deadline = time.monotonic() + self._build_seconds
        overdue = threading.Timer(self._build_seconds, self._end, (container,))
        overdue.start()
        try:
            engine.put_archive(container, _FOLDER, _archive(wanted))
            attached = engine.attach_socket(container, {"stdout": 1, "stderr": 1, "stream": 1})
            # The response is closed first: it flushes what lies below it.
            with contextlib.closing(attached), contextlib.closing(attached._response):
                engine.start(container)
                frames = frames_iter(attached, tty=False)  # type: ignore[no-untyped-call]  # docker-py
                pieces = (piece for _, piece in frames)
                self._follow(({"stream": line} for line in _lines(pieces)), output)
            status = engine.wait(container)["StatusCode"]
            if time.monotonic() > deadline:
                raise Unavailable(f"a build takes more than {self._build_seconds:g} s")
            if status == 0:
                conf = {"Labels": named, "Entrypoint": [], "Cmd": ["python3"]}
                tag = named[LABEL_OF_PROBLEM]
                engine.commit(container, repository=_REPOSITORY, tag=tag, conf=conf)
        finally:
            overdue.cancel()
            remove(engine, container)
        return f"pip ended with status {status}" if status else ""

    def _end(self, container: str) -> None:
        """Ends a container, whose output would otherwise be waited for without a limit."""
        with contextlib.suppress(Unavailable), engine_client(self._engine_seconds) as engine:
            engine.kill(container)

    def _follow(self, lines: Iterator[Mapping[str, Any]], output: list[str]) -> str:
        """Shows and keeps the output of a build; returns its error, "" without one.

        Raises:
          Unavailable: It takes too long.
        """
        deadline = time.monotonic() + self._build_seconds
        error = ""
        # The lines are read to their end, so that the connection is free again.
        for line in lines:
            error = str(line.get("error", error)).strip()
            for text in _COLOUR.sub("", str(line.get("stream", ""))).splitlines():
                if text.strip():
                    output.append(redacted(text.rstrip()))
                    self._show_progress(f"sandbox: {output[-1]}")
            del output[:-100]
            if time.monotonic() > deadline:
                raise Unavailable(f"a build takes more than {self._build_seconds:g} s")
        return error


def _proxies() -> list[str]:
    """Returns the proxies that Docker's own settings give to containers, as `env` takes them."""
    ours = load_general_config().get("proxies", {}).get("default", {})
    variables = ProxyConfig.from_dict(ours).get_environment()
    return [f"{name}={value}" for name, value in variables.items()]


def _lines(pieces: Iterator[bytes]) -> Iterator[str]:
    """Yields the lines of a stream, each as soon as it is whole, in pieces of bounded length."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        if len(rest) > _LONGEST_LINE_BYTES:
            whole, rest = [*whole, rest], b""
        for line in whole:
            yield line.decode("utf-8", "replace")
    yield rest.decode("utf-8", "replace")


def _archive(wanted: Dependencies) -> io.BytesIO:
    """Returns the files that are installed from as a tar archive."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, contents in sorted(wanted.files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(contents), 0o644
            archive.addfile(member, io.BytesIO(contents))
    packed.seek(0)
    return packed
