"""Events in a lab while its programs run: "10s:cut:3" and the like, in time's order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from volary.errors import SettingError
from volary.lab.network import rates
from volary.lab.network.topology import LabTopology

Kind = Literal["cut", "restore", "rate", "trunk"]
ACCEPTED = "accepted: SECONDSs:cut:HOST, SECONDSs:restore:HOST, SECONDSs:rate:HOST:RATE, SECONDSs:trunk:GROUP:RATE"
_TIME = re.compile(r"(\d+(?:\.\d+)?)(s|ms)?")


class Changeable(Protocol):
    """The protocol of what changes are made to: the lab."""

    def cut(self, host: int) -> None: ...
    def restore(self, host: int) -> None: ...
    def set_rate(self, host: int, rate: str | float | None) -> None: ...
    def set_trunk(self, group: int, rate: str | float | None) -> None: ...


@dataclass(frozen=True)
class LinkChange:
    """at_s: seconds after the programs were started. number: of the host, or of the group whose trunk changes.

    rate: the new one, of kinds rate and trunk.
    """

    at_s: float
    kind: Kind
    number: int
    rate: str | None = None

    @classmethod
    def parse(cls, text: str) -> LinkChange:
        """The change that "10s:cut:3" or "5s:rate:2:50mbit" says. Raises SettingError."""
        when, _, what = text.partition(":")
        kind, *rest = what.split(":")
        found = _TIME.fullmatch(when)
        needs = 2 if kind in ("rate", "trunk") else 1
        if not found or kind not in get_args(Kind) or len(rest) != needs or not rest[0].isdecimal():
            raise SettingError(f"at is {text!r}; {ACCEPTED}")
        if needs == 2:
            rates.parse(rest[1])
        seconds = float(found[1]) / (1000 if found[2] == "ms" else 1)
        return cls(seconds, kind, int(rest[0]), rest[1] if needs == 2 else None)  # type: ignore[arg-type]  # judged above

    def make(self, lab: Changeable) -> None:
        """Let it happen now. Raises LabError if the lab refuses."""
        match self.kind:
            case "cut":
                lab.cut(self.number)
            case "restore":
                lab.restore(self.number)
            case "rate":
                lab.set_rate(self.number, self.rate)
            case "trunk":
                lab.set_trunk(self.number, self.rate)

    def __str__(self) -> str:
        what = f"trunk of group {self.number}" if self.kind == "trunk" else f"link of host {self.number}"
        return f"{self.at_s:g} s: {what} " + (
            f"now {self.rate}" if self.rate else f"{self.kind}{'d' * (self.kind == 'restore')}"
        )


class Timeline:
    """Changes to a lab of this topology, taken as their time comes. Raises SettingError if one does not fit it."""

    def __init__(self, changes: Iterable[LinkChange | str], topology: LabTopology) -> None:
        parsed = [LinkChange.parse(change) if isinstance(change, str) else change for change in changes]
        for change in parsed:
            (topology.check_group if change.kind == "trunk" else topology.check_host)(change.number)
        self._waiting = sorted(parsed, key=lambda change: change.at_s)

    @property
    def next_s(self) -> float | None:
        """Seconds after the start at which the next change is due; None if there is none left."""
        return self._waiting[0].at_s if self._waiting else None

    def due(self, elapsed_s: float) -> Sequence[LinkChange]:
        """Return the changes whose time has come, each once."""
        found = [change for change in self._waiting if change.at_s <= elapsed_s]
        del self._waiting[: len(found)]
        return found
