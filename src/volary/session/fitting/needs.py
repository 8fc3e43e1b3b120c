"""A setting's need of what an exchange may lack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from volary.errors import SettingError
from volary.session.reading.choice import Choice

Trait = Literal[
    "versions",
    "whole gradient",
    "gradient norm",
    "all sums",
    "all parameters",
    "whole tensors",
    "wire",
    "peers",
    "process group",
    "steps together",
    "shares",
    "own loop",
    "one update",
    "parts",
]
"""versions: parameters that differ in age are told apart. whole gradient: all gradients are there before a parameter
changes. gradient norm: the norm of all is known before one does. all sums: each worker has those of all gradients.
all parameters: each worker has them between two steps. whole tensors: no parameter is cut among workers. wire: values
travel. peers: workers send to each other. process group: they are in one of torch. steps together: all workers share
each batch. shares: a value may be kept by one worker alone. own loop: a loop of one's own trains so. one update: all
values change together, once a step. parts: an update may be of some values alone."""
TRAITS: frozenset[str] = frozenset(get_args(Trait))
CONSISTENCY, EXCHANGE, PARTITION, ENGINE = (
    Choice(f"volary.{room}") for room in ("consistency", "exchange", "partition", "engine")
)
OF_REPLICAS: frozenset[Trait] = frozenset({"steps together", "whole gradient"})  # workers of one have them over servers
AVERAGES = Choice("volary.train.averages")
OPTIMIZER, SCHEDULE = (Choice(f"volary.train.{room}") for room in ("optimizers", "schedules"))


@dataclass(frozen=True)
class Need:
    """A setting that works only where the exchange does not lack `trait`. instead: what is accepted."""

    setting: str
    value: str
    trait: Trait
    instead: str


def exchange_for(consistency: Any) -> Any:
    """The first exchange that has what the consistency model needs. Raises SettingError if there is none."""
    for name in EXCHANGE.open().names():
        exchange = EXCHANGE.open().load(name)()
        if not (consistency.needs_server and "versions" in exchange.lacks):
            return exchange
    raise SettingError("consistency: no exchange keeps versions of parameters")
