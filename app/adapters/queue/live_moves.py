"""The moves of games that are being played: in Redis for a while, for people to watch.

Nothing is decided by them, and they are not written to the ledger: the result of a game brings its
moves again.
"""

import json
import threading
import time
from collections.abc import Sequence

import redis

KEPT_SECONDS = 60
"""A game whose next move takes longer is shown without a position until that move comes."""
_PREFIX = "evoq:moves:"
_SECONDS = 1.0
_REST_SECONDS = 10.0
"""Pause after Redis did not answer: whoever plays waits for it meanwhile."""
_LONGEST = 80
_MOST_BYTES = 1 << 20


class LiveMoves:
    """Shows the moves of this process's games.

    Args:
      redis_url: The queue's, in the form of redis-py; no connection is opened before the first use.
    """

    def __init__(self, redis_url: str) -> None:
        self._client = redis.Redis.from_url(
            redis_url, socket_timeout=_SECONDS, socket_connect_timeout=_SECONDS
        )
        self._lock = threading.Lock()
        self._rests_until = 0.0

    def show(self, trial: int, moves: Sequence[str]) -> None:
        """Shows the moves of a game so far.  A Redis that does not answer is left alone a while."""
        with self._lock:
            if time.monotonic() < self._rests_until:
                return
        try:
            self._client.set(f"{_PREFIX}{trial}", json.dumps(list(moves)), ex=KEPT_SECONDS)
        except redis.RedisError:
            with self._lock:
                self._rests_until = time.monotonic() + _REST_SECONDS


def live_moves(redis_url: str, trials: Sequence[int]) -> dict[int, list[str]]:
    """Returns the moves so far of games that are being played; what is no list of texts is none.

    Args:
      redis_url: The queue's, in the form of redis-py.
      trials: The games.

    Raises:
      OSError: Redis does not answer.
    """
    if not trials:
        return {}
    try:
        with redis.Redis.from_url(
            redis_url, socket_timeout=_SECONDS, socket_connect_timeout=_SECONDS
        ) as client:
            found = client.mget([f"{_PREFIX}{trial}" for trial in trials])
    except redis.RedisError as error:
        raise OSError(f"the queue does not answer: {error}") from error
    texts = zip(trials, found, strict=True)
    return {trial: moves for trial, text in texts if (moves := _moves(text))}


def _moves(text: bytes | None) -> list[str]:
    try:
        moves = json.loads(text) if text and len(text) <= _MOST_BYTES else None
    except (ValueError, RecursionError):
        return []
    if not isinstance(moves, list) or not all(isinstance(move, str) for move in moves):
        return []
    return [move[:_LONGEST] for move in moves]
