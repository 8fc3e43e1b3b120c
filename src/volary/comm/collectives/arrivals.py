"""Pieces that are added on arrival: received into a few places in turn, which are asked for before the data comes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.topology.links import Links, Transfer

AHEAD = 8  # the word that a place is free travels behind what is under way: with fewer the sender would wait for it


class Arrivals:
    """Pieces of `numels` values that `source` sends in this order; each call of `add_to` takes one."""

    def __init__(self, links: Links, source: int, numels: Sequence[int], dtype: torch.dtype) -> None:
        self._links, self._source = links, source
        self._unasked = deque(numels)
        self._underway: deque[tuple[Transfer, Tensor]] = deque()
        for _ in numels[:AHEAD]:
            self._ask_into(torch.empty(max(numels), dtype=dtype))

    def add_to(self, values: Tensor) -> None:
        """Add the next piece to `values`, (numel,) with as many values as it has."""
        transfer, place = self._underway.popleft()
        transfer.wait()
        values.add_(place[: values.numel()])
        if self._unasked:
            self._ask_into(place)

    def _ask_into(self, place: Tensor) -> None:
        transfer = self._links.receive(place[: self._unasked.popleft()], self._source)
        self._underway.append((transfer, place))
