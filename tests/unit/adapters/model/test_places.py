"""Places at a model: as many threads have one as the model takes requests."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from app.adapters.model.places import ModelPlaces
from app.ports.protocols import Unavailable


def test_no_more_threads_have_a_place_than_there_are() -> None:
    places, lock = ModelPlaces(lambda: 3), threading.Lock()
    inside, most = 0, 0

    def breed(_: int) -> None:
        nonlocal inside, most
        with places.take():
            with lock:
                inside += 1
                most = max(most, inside)
            threading.Event().wait(0.002)
            with lock:
                inside -= 1

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(breed, range(64)))
    assert most == 3


def test_a_place_that_is_given_back_early_is_taken_by_the_next_and_counted_once() -> None:
    places = ModelPlaces(lambda: 1, patience_seconds=0.0)
    with places.take() as give:
        give()
        give()
        with (
            places.take(),
            pytest.raises(Unavailable, match="no place at the model"),
            places.take(),
        ):
            pass
    with places.take():
        pass


def test_a_place_is_given_back_by_work_that_fails() -> None:
    places = ModelPlaces(lambda: 1, patience_seconds=0.0)
    with pytest.raises(ValueError, match="fault"), places.take():
        raise ValueError("fault")
    with places.take():
        pass


def test_threads_that_wait_use_a_limit_that_rises() -> None:
    limit = 0
    places = ModelPlaces(lambda: limit)
    taken = threading.Semaphore(0)
    leave = threading.Event()

    def breed() -> None:
        with places.take():
            taken.release()
            leave.wait(30)

    with ThreadPoolExecutor(2) as pool:
        waiting: list[Callable[[], object]] = [pool.submit(breed).result for _ in range(2)]
        assert not taken.acquire(timeout=0.05)
        limit = 2
        assert all(taken.acquire(timeout=30) for _ in range(2))
        leave.set()
        for done in waiting:
            done()


def test_a_model_without_a_limit_has_a_place_for_every_thread() -> None:
    places = ModelPlaces(lambda: None, patience_seconds=0.0)
    with ExitStack() as kept:
        for _ in range(1000):
            kept.enter_context(places.take())
