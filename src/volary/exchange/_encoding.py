"""The codec of a worker's pushes over a run: what it is now, and what is owed by slices that it encodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from volary.exchange._error_memory import ErrorMemory
from volary.exchange._plan import row_values
from volary.exchange._pushed import Encoded
from volary.exchange._sections import Section
from volary.exchange._way import Encoded as Way
from volary.server.sections import sections

if TYPE_CHECKING:
    from torch import Tensor

    from volary.codec._base import Codec
    from volary.exchange._plan import Plan


class Encoding:
    """Of the buckets of `plans` that travel by `codec`. told: see `volary.exchange._pushed.Encoded`."""

    def __init__(self, codec: Codec, plans: Sequence[Plan], told: Callable[[str], None] | None) -> None:
        self._codec, self._plans, self._told = codec, plans, told
        self._stage = codec.at(0)
        self._encoded: list[tuple[int, int, list[int], list[int], Encoded]] = []
        self._errors = ErrorMemory(self._now())

    def slice(
        self, bucket: int, start: int, parts: Sequence[tuple[int, int]], values: Tensor, users: Tensor
    ) -> Encoded:
        """What is pushed of a slice from value `start` of a bucket on. parts: parameters, and how many values of each.

        values: where they lie. users: of each part.
        """
        named = [self._plans[bucket].parameters[number] for number, _ in parts]
        lengths, widths = [length for _, length in parts], [row_values(parameter) for _, parameter in named]
        made = Encoded(values, users, self._told, named[0][0])
        self._encoded.append((bucket, start, lengths, widths, made))
        self._use(*self._encoded[-1])
        return made

    def at(self, samples: int) -> None:
        """The run has learnt from so many samples; nothing is under way."""
        stage = self._codec.at(samples)
        if stage == self._stage:
            return
        self._stage, owed = stage, self._errors.state()
        self._errors = ErrorMemory(self._now())
        self._errors.restore([owed])
        for one in self._encoded:
            self._use(*one)

    def _now(self) -> list[Plan]:
        return [replace(plan, way=Way(self._stage)) if isinstance(plan.way, Way) else plan for plan in self._plans]

    def _use(self, bucket: int, start: int, lengths: list[int], widths: list[int], encoded: Encoded) -> None:
        found = [
            Section(start + one.start, one.rows, one.columns, one.offset, one.frame_bytes, exact=False)
            for one in sections(lengths, widths, self._stage)
        ]
        encoded.use(self._errors.of(self._plans[bucket]), found)
