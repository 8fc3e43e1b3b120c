"""An optimiser of a user's own that updates a worker's part of a network: its state, in parts and whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from volary.errors import SettingError
from volary.sharding.ranges import Range
from volary.train.agreement.gathered_state import gathered
from volary.train.own.parts.whole_tensors import part_of
from volary.train.served.server.loop_optimizer import is_elementwise
from volary.train.state.optimizer_state import OptimizerState
from volary.train.update.held_parameters import parameters_of
from volary.train.update.optimizer_rule import SliceOptimizer, state_as

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from volary.sharding.holdings import Holdings
    from volary.train.own.parts.whole_tensors import Together, WholeParameters


class CutOptimizer:
    """Its parameters are this worker's parts from now on, as `holdings` say; what it remembers is cut with them.

    network: whose parameters it was given, among others. own: those of them that this worker has, by name.
    `state_dict()` is as if it had all, and a collective call; `load_state_dict()` takes such a one. together: see
    `volary.train.own.parts.whole_tensors.WholeTensors`. Raises SettingError for an optimiser that needs whole
    parameters to update them.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        network: WholeParameters,
        own: Mapping[str, Tensor],
        holdings: Holdings,
        together: Together,
    ) -> None:
        if not is_elementwise(optimizer):
            raise SettingError(
                f"nothing says that {type(optimizer).__name__} updates each value on its own, and workers have parts "
                "of parameters; accepted: an elementwise one, as SGD or Adam, one of your own whose class says "
                "elementwise = True, or partition=data"
            )
        self.optimizer, self._network, self._own = optimizer, network, own
        self._holdings, self._together, self._in_parts = holdings, together, False
        self._names = {id(one): name for name, one in own.items()}
        self._groups = [list(map(network.name_of, group["params"])) for group in optimizer.param_groups]
        for group, names in zip(optimizer.param_groups, self._groups, strict=True):
            kept = [one for one, name in zip(group["params"], names, strict=True) if not name or name in own]
            for other in group["params"]:
                if not any(other is one for one in kept):
                    optimizer.state.pop(other, None)
            group["params"] = kept
        for parameter, entries in optimizer.state.items():
            entries.update(self._cut(self._names.get(id(parameter), ""), entries))
        self._hooks = [
            optimizer.register_state_dict_post_hook(self._read),
            optimizer.register_load_state_dict_pre_hook(self._load),
        ]

    def settings(self) -> dict[str, Any]:
        """Its whole `state_dict()` without what it remembers of parameters: the same on all workers."""
        with self._of_parts():
            return {"state": {}, "param_groups": self._numbered(self.optimizer.state_dict()["param_groups"])}

    def state(self) -> OptimizerState:
        """Its state of this worker's parts, as of tensors of their own."""
        return state_of(self.optimizer, self._names)

    def close(self) -> None:
        """Let go of the optimiser."""
        for hook in self._hooks:
            hook.remove()

    @property
    def _whole_names(self) -> list[str]:
        return [name for names in self._groups for name in names]

    def _cut(self, name: str, entries: Mapping[str, Any]) -> dict[str, Any]:
        block = self._holdings.blocks.get(name)
        return {key: entry if block is None else part_of(entry, block) for key, entry in entries.items()}

    def _numbered(self, groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Groups as torch describes them, with the numbers of all parameters instead of this worker's."""
        bounds = pairwise(accumulate(map(len, self._groups), initial=0))
        return [{**one, "params": list(range(*span))} for one, span in zip(groups, bounds, strict=True)]

    @contextmanager
    def _of_parts(self) -> Iterator[None]:
        self._in_parts = True
        try:
            yield
        finally:
            self._in_parts = False

    def _load(self, _: Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        names = self._whole_names
        if sum(len(group["params"]) for group in state["param_groups"]) != len(names):
            return state  # of which torch says what is wrong
        own = [number for number, name in enumerate(names) if not name or name in self._own]
        place = {number: at for at, number in enumerate(own)}
        entries = {place[n]: self._cut(names[n], one) for n, one in state["state"].items() if n in place}
        groups = [
            {**group, "params": [place[n] for n in group["params"] if n in place]} for group in state["param_groups"]
        ]
        return {**state, "state": entries, "param_groups": groups}

    def _read(self, _: Optimizer, state: dict[str, Any]) -> dict[str, Any] | None:
        if self._in_parts:
            return None
        whole = whole_state(self.state(), self._own, self._holdings, self._together)
        found: dict[int, Any] = {}
        for number, name in enumerate(self._whole_names):
            like = self._network.likes.get(name)
            part = None if like is None else whole.of(Range(name, 0, like.numel()))
            if part is not None and like is not None and (part.each or part.whole):
                found[number] = state_as(part, like)
        return {**state, "state": found, "param_groups": self._numbered(state["param_groups"])}


def whole_state(state: OptimizerState, own: Iterable[str], holdings: Holdings, together: Together) -> OptimizerState:
    """The state of whole tensors, of that of this worker's parts. own: the names of these. A collective call."""
    mine = {name for name in own if holdings.writes_of(name)}
    with together("state_dict", 0) as group:
        return gathered(state.cut(holdings.blocks).of_names(mine), group)


def state_of(optimizer: Optimizer, names: Mapping[int, str]) -> OptimizerState:
    """The state of parameters in an elementwise optimiser, each as it is here. names: by id."""
    parts = {Range(names[id(one)], 0, one.numel()): one for one in parameters_of(optimizer) if id(one) in names}
    return OptimizerState(SliceOptimizer(parts, lambda _: optimizer, elementwise=True, clip_value=None).state())


def take_up(optimizer: Optimizer, settings: Any, state: OptimizerState, names: Mapping[int, str]) -> None:
    """Let an optimiser go on from what `CutOptimizer` has of another: its settings, and what that remembered."""
    optimizer.load_state_dict(settings)
    for one in parameters_of(optimizer):
        part = state.of(Range(names[id(one)], 0, one.numel())) if id(one) in names else None
        if part is not None and (part.each or part.whole):
            optimizer.state[one] = state_as(part, one.detach())
