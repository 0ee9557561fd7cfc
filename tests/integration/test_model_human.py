"""A person as a model, whose other end is a thread or the command."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.adapters.model.providers.human import HumanModel, answer, unanswered
from app.domain.operator import Prompt, Role
from app.ports.protocols import Misconfigured, Unavailable
from tests.contracts.language_model import PartialAnswersContract, Serve

WAIT_SECONDS = 120.0


def later() -> float:
    """A clock for which every reply was written a while ago."""
    return time.time() + 2.0


class Person:
    """Answers whatever is asked, by the user's part of the prompt, until `gone` is set."""

    def __init__(self, folder: Path, said: Callable[[str], str], gone: threading.Event) -> None:
        self._folder, self._said, self._gone = folder, said, gone
        self._ignored: set[str] = set()
        self.thread = threading.Thread(target=self._act)
        self.thread.start()

    def _act(self) -> None:
        while not self._gone.wait(0.02):
            for each in unanswered(self._folder):
                user = each.text.split("\n\n")[-1].strip("\n")
                try:
                    answer(self._folder, each.name, self._said(user))
                except Unavailable:
                    self._ignored.add(each.name)

    @property
    def silent(self) -> bool:
        """Whether prompts wait, and none of them will be answered."""
        left = {each.name for each in unanswered(self._folder)}
        return bool(left) and left <= self._ignored


class TestHumanModel(PartialAnswersContract):
    @pytest.fixture
    def serve(self, tmp_path: Path) -> Iterator[Serve]:
        gone, people = threading.Event(), list[Person]()

        def serve(said: Callable[[str], str]) -> HumanModel:
            folder, waited_seconds = tmp_path / f"person {len(people)}", 0.0
            person = Person(folder, said, gone)
            people.append(person)

            def sleep(_: float) -> None:
                """Waits for the person; the whole wait is over once no reply will come."""
                nonlocal waited_seconds
                time.sleep(0.02)
                waited_seconds += WAIT_SECONDS if person.silent else 0.0

            return HumanModel(
                "ada",
                folder,
                wait_seconds=WAIT_SECONDS,
                sleep=sleep,
                clock=lambda: later() + waited_seconds,
            )

        yield serve
        gone.set()
        for person in people:
            person.thread.join()


def model(folder: Path, wait_seconds: float = 0.0) -> HumanModel:
    return HumanModel("ada", folder, wait_seconds=wait_seconds, clock=later)


def test_a_prompt_is_written_once_and_waits_where_the_message_says(tmp_path: Path) -> None:
    asked = Prompt("be brief", "hello", 4)
    for _ in range(2):
        with pytest.raises(Unavailable, match="wait for a person") as caught:
            model(tmp_path).complete([asked])

    assert str(tmp_path) in str(caught.value)
    assert not isinstance(caught.value, Misconfigured)
    [waiting] = unanswered(tmp_path)
    assert waiting.text == "# System\n\nbe brief\n\nhello\n"
    assert waiting.name.startswith("4-")


def test_a_reply_written_after_the_wait_is_read_by_the_next_call(tmp_path: Path) -> None:
    prompts = [Prompt("", "one", 1), Prompt("", "two", 2, Role.REFINER)]
    with pytest.raises(Unavailable):
        model(tmp_path).complete(prompts)
    answer(tmp_path, unanswered(tmp_path)[0].name, "eins")
    with pytest.raises(Unavailable, match=r"^1 prompt"):
        model(tmp_path).complete(prompts)
    answer(tmp_path, unanswered(tmp_path)[0].name, "zwei")

    replies = model(tmp_path).complete(prompts)

    assert [(reply.text, reply.model, reply.role) for reply in replies] == [
        ("eins", "ada", Role.GENERATOR),
        ("zwei", "ada", Role.REFINER),
    ]


def test_a_reply_that_an_editor_may_still_be_writing_is_not_read(tmp_path: Path) -> None:
    asked = Prompt("", "hello")
    with pytest.raises(Unavailable):
        model(tmp_path).complete([asked])
    answer(tmp_path, unanswered(tmp_path)[0].name, "half a sen")
    [reply] = tmp_path.glob("*.reply.md")
    written = reply.stat().st_mtime

    with pytest.raises(Unavailable):
        HumanModel("ada", tmp_path, wait_seconds=0.0, clock=lambda: written + 0.9).complete([asked])


def test_a_prompt_drawn_again_replaces_the_earlier_prompt(tmp_path: Path) -> None:
    for text in ("of an old parent", "of a new one"):
        with pytest.raises(Unavailable):
            model(tmp_path).complete([Prompt("", text, 7)])

    assert [each.text for each in unanswered(tmp_path)] == ["of a new one\n"]


def test_a_prompt_is_answered_once(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        model(tmp_path).complete([Prompt("", "hello")])
    [waiting] = unanswered(tmp_path)
    answer(tmp_path, waiting.name, "yes")

    with pytest.raises(LookupError, match="waits for an answer"):
        answer(tmp_path, waiting.name, "no")


def test_a_prompt_that_several_workers_write_at_once_is_one_file(tmp_path: Path) -> None:
    texts = [f"{n} {'long ' * 40_000}" for n in range(25)]

    def ask(_: int) -> list[str]:
        faults = []
        for n, text in enumerate(texts):
            with pytest.raises(Unavailable) as caught:
                model(tmp_path).complete([Prompt("", text, n)])
            faults += [str(caught.value)] if isinstance(caught.value, Misconfigured) else []
        return faults

    with ThreadPoolExecutor(6) as pool:
        assert not [fault for faults in pool.map(ask, range(6)) for fault in faults]

    assert sorted(each.text for each in unanswered(tmp_path)) == sorted(f"{t}\n" for t in texts)
    assert len(list(tmp_path.iterdir())) == len(texts)


def test_a_reply_is_read_though_its_prompt_is_gone_and_an_editor_marked_its_encoding(
    tmp_path: Path,
) -> None:
    with pytest.raises(Unavailable):
        model(tmp_path).complete([Prompt("", "hello")])
    [asked] = tmp_path.iterdir()
    name = asked.name.removesuffix(".prompt.md")
    (tmp_path / f"{name}.reply.md").write_bytes(b"\xef\xbb\xbfyes\r\n")
    asked.unlink()

    [reply] = HumanModel("ada", tmp_path, wait_seconds=60.0).complete([Prompt("", "hello")])

    assert reply.text == "yes\n"


def test_a_folder_that_cannot_be_written_needs_a_person(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(Misconfigured, match=r"llm\.answers"):
        model(tmp_path / "file" / "folder").complete([Prompt("", "hello")])
