"""A parameter server: processes of their own keep the parameters and update them (Li et al., OSDI 2014).

Workers push contributions to the slices of each server and pull what they became. Which contributions make an update,
and how old a value may be, is the consistency model's to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from volary.errors import SettingError
from volary.exchange._base import Exchange

COLOCATED: Literal["colocated"] = "colocated"


@dataclass(frozen=True, kw_only=True)
class Server(Exchange):
    """Slices of the parameters on server processes, which apply the update rule; workers push and pull."""

    servers: int | Literal["colocated"] = 1  # server processes; colocated: one beside each of the first workers
    replicas: int = 1  # servers that keep each slice; with 2 the run continues when one server is killed
    pulls: Literal["none", "fp16", "bf16", "int8"] = "none"  # codec of what has changed since a worker's last pull
    transport: Literal["auto", "tcp", "shared"] = "auto"  # auto: shared memory inside a machine, TCP between machines

    equal: ClassVar[bool] = False  # replicas: each worker holds what it pulled last
    lacks: ClassVar[Mapping[str, str]] = {  # see `volary.session.fitting.needs.Trait`: what it has not, and why
        "whole gradient": "with exchange=server parameters are updated slice by slice",
        "peers": "with exchange=server workers send to servers alone",
        "parts": "with exchange=server an update is of all parameters: what workers read, and what is saved, is of one",
        "process group": "with exchange=server connections are its own (exchange.transport)",
        "steps together": "with exchange=server portions of a batch are handed out",
        "shares": "with exchange=server servers keep the parameters and what the optimiser remembers",
    }

    def __post_init__(self) -> None:
        if not isinstance(self.servers, str) and self.servers < 1:
            raise SettingError(f"servers is {self.servers}; accepted: a whole number, 1 or more, or 'colocated'")
        if self.replicas not in (1, 2):
            raise SettingError(f"replicas is {self.replicas}; accepted: 1 or 2")

    def check(self, topology: object) -> None:
        """Refuse nothing: values go to servers, whatever the topology of workers is."""

    def count(self, workers: int) -> int:
        """Server processes of a run that starts with so many workers."""
        return workers if isinstance(self.servers, str) else self.servers


EXCHANGE = Server
