"""Pieces of files that are on their way from a store, or have come: each is asked for once, whoever wants it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future

STAGED_BYTES = 256 * 2**20  # of what has come and was not decoded yet
WAIT_S = 600.0  # for a piece that another thread has asked for: longer than all tries of a call


class Staging:
    """Keeps up to `most_bytes` of what has come, the newest. keep: whether a piece stays once it was taken."""

    def __init__(self, most_bytes: int, *, keep: bool) -> None:
        self._most_bytes, self._keep = most_bytes, keep
        self._pieces: OrderedDict[int, Future[bytes]] = OrderedDict()
        self._held_bytes = 0
        self._lock = threading.Lock()

    def take(self, key: int, fetch: Callable[[], bytes]) -> bytes:
        """The piece: what has come, or what comes, or what `fetch` gives. Raises what the asking for it raised."""
        with self._lock:
            there = self._pieces.get(key)
            future = there or self._pieces.setdefault(key, Future())
        if there is None:
            self._fill([key], [future], lambda _: [fetch()])
        content = future.result(WAIT_S)
        if not self._keep:
            self._forget(key, future)
        return content

    def bring(self, keys: Sequence[int], fetch: Callable[[Sequence[int]], Sequence[bytes]]) -> None:
        """Have those pieces come that are not on their way. What fails is asked for again when it is taken."""
        with self._lock:
            new = [key for key in keys if key not in self._pieces]
            futures = [self._pieces.setdefault(key, Future()) for key in new]
        self._fill(new, futures, fetch)

    def _fill(
        self, keys: Sequence[int], futures: Sequence[Future[bytes]], fetch: Callable[[Sequence[int]], Sequence[bytes]]
    ) -> None:
        try:
            found = fetch(keys) if keys else []
        except BaseException as problem:  # libraries of stores raise whatever they like, and nobody may wait for ever
            for key, future in zip(keys, futures, strict=True):
                self._forget(key, future)
                future.set_exception(problem)
            return
        for future, content in zip(futures, found, strict=True):
            future.set_result(content)
        with self._lock:
            self._held_bytes += sum(map(len, found))
            for key in list(self._pieces) if self._held_bytes > self._most_bytes else ():
                if self._held_bytes > self._most_bytes and self._pieces[key].done():
                    self._held_bytes -= len(self._pieces.pop(key).result())

    def _forget(self, key: int, future: Future[bytes]) -> None:
        with self._lock:
            if self._pieces.get(key) is future:
                del self._pieces[key]
                if future.done():
                    self._held_bytes -= len(future.result())
