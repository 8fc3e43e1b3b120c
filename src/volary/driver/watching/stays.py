"""Keeps hosts out whose workers join a run and are gone again soon: a plain state machine, its clock handed in."""

from __future__ import annotations

from collections import deque

SHORT_S = 30.0  # a stay that is as short moves the others' work more than it adds
MOST_SHORT = 3  # in a row, after which a host is kept out
OUT_S = 60.0  # since the newest of them
KEPT_HOSTS = 1024


class Stays:
    """The stays of workers that have joined, by host: from when they came until they were lost, or left by themselves.

    One that is longer than `SHORT_S` lets all short ones before it count no more.
    """

    def __init__(self) -> None:
        self._arrived: dict[int, tuple[str, float]] = {}
        self._short: dict[str, deque[float]] = {}  # by host, when the newest short ones ended

    def arrived(self, rank: int, host: str, now_s: float) -> None:
        """A worker has joined from `host`."""
        self._arrived[rank] = host, now_s

    def went(self, rank: int, now_s: float) -> None:
        """A worker is gone; nothing is noted of one that has not joined."""
        host, arrived_s = self._arrived.pop(rank, ("", 0.0))
        if not host:
            return
        if now_s - arrived_s > SHORT_S:
            self._short.pop(host, None)
            return
        if len(self._short) >= KEPT_HOSTS:
            self._short.pop(next(iter(self._short)))
        self._short.setdefault(host, deque(maxlen=MOST_SHORT)).append(now_s)

    def why_out(self, host: str, now_s: float) -> str:
        """A sentence why no more workers of `host` are let in; empty if they are."""
        ended = self._short.get(host, deque())
        left_s = ended[-1] + OUT_S - now_s if len(ended) == MOST_SHORT else 0.0
        if left_s <= 0:
            return ""
        return (
            f"host {host} is kept out for another {left_s:.0f} s: its last {MOST_SHORT} workers were each gone within "
            f"{SHORT_S:.0f} s"
        )
