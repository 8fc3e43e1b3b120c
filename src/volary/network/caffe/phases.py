"""Which layers of a network are there in a phase: the rules `include` and `exclude` of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from volary.network.caffe.findings import Findings
from volary.network.caffe.message import CaffeMessage


@dataclass(frozen=True)
class NetState:
    """The state that rules are compared with, as Caffe's NetState."""

    phase: Literal["TRAIN", "TEST"]
    level: int = 0
    stages: frozenset[str] = frozenset()

    @classmethod
    def of(cls, state: CaffeMessage, phase: Literal["TRAIN", "TEST"]) -> NetState:
        """The state that a NetState says, in a phase."""
        return cls(phase, state.one("level"), frozenset(state.all("stage")))

    def merged(self, other: NetState) -> NetState:
        """This state with another's stages and level on top, as Caffe merges a network's with its solver's."""
        return NetState(self.phase, other.level or self.level, self.stages | other.stages)


def layers_in(net: CaffeMessage, state: NetState, findings: Findings) -> list[CaffeMessage]:
    """The layers of a network of today's form that are there in this state, in the order of the file."""
    state = NetState.of(net.part("state"), state.phase).merged(state)
    return [layer for layer in net.all("layer") if _there(layer, state, findings)]


def _there(layer: CaffeMessage, state: NetState, findings: Findings) -> bool:
    include, exclude = layer.all("include"), layer.all("exclude")
    if include and exclude:
        findings.add("has both include and exclude; accepted: one of them", layer.line, layer.one("name"))
    if include:
        return _any_meets(include, state)
    return not _any_meets(exclude, state)


def _any_meets(rules: Iterable[CaffeMessage], state: NetState) -> bool:
    return any(_meets(rule, state) for rule in rules)


def _meets(rule: CaffeMessage, state: NetState) -> bool:
    return (
        ("phase" not in rule or rule.one("phase") == state.phase)
        and ("min_level" not in rule or state.level >= rule.one("min_level"))
        and ("max_level" not in rule or state.level <= rule.one("max_level"))
        and state.stages.issuperset(rule.all("stage"))
        and state.stages.isdisjoint(rule.all("not_stage"))
    )
