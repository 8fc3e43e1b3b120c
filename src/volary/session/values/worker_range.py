"""Between how many workers a run trains: "2..8"."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from volary.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from volary.session.reading.node import Fault, Node

_RANGE = re.compile(r"\s*([0-9]{1,6})\s*\.\.\s*([0-9]{1,6})\s*", re.ASCII)


@dataclass(frozen=True)
class WorkerRange:
    """The fewest and the most workers that there may be."""

    accepted: ClassVar[str] = "the fewest and the most, as 2..8"
    fewest: int
    most: int

    @classmethod
    def parse(cls, text: str) -> WorkerRange:
        """Read "2..8". Raises SettingError for anything else."""
        if not (found := _RANGE.fullmatch(text)):
            raise SettingError(f"is {text!r}; accepted: {cls.accepted}")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.fewest}..{self.most}"


def begun_with_most(given: Mapping[str, Node], refuse: Callable[[str, str], Fault]) -> dict[str, Node]:
    """The settings of a strategy whose `workers: 2..8` are `between: 2..8`, and first `workers: 8`.

    refuse: notes of the setting with this name what is accepted instead.
    """
    workers = given.get("workers")
    if workers is None or not isinstance(workers.value, str):
        return dict(given)
    if not (found := _RANGE.fullmatch(workers.value)):
        return {
            **given,
            "workers": replace(workers, value=refuse("workers", f"a whole number, or {WorkerRange.accepted}")),
        }
    return {**given, "workers": replace(workers, value=int(found[2])), "between": workers}
