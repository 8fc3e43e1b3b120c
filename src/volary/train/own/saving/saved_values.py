"""Values given to `worker.save` as a checkpoint has them, and how `worker.restore` takes them, whoever wrote them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from torch import nn
from torch.optim import Optimizer

from volary.errors import BadInput
from volary.naming import loadable, named_parameters, plain_names, unwrapped
from volary.train.own.model.contents import as_one
from volary.train.own.model.model_average import ModelAverage
from volary.train.own.parts.cut_optimizer import take_up
from volary.train.own.saving.plain_values import ACCEPTED, keepable, loads
from volary.train.own.served.average import ServedAverage
from volary.train.state.optimizer_state import OptimizerState
from volary.train.state.part_state import AVERAGE
from volary.train.state.weights import SavedWeights, load_weights
from volary.train.update.held_parameters import ids_of

if TYPE_CHECKING:
    from pathlib import Path

    from volary.run.checkpoints import Manifest
    from volary.train.own.parts.cut_model import CutModel
    from volary.train.state.held import Savable

MODEL = "model"  # saved under this name, a network is what `volary export` writes
_SERVED = {"served": True}  # in the place of a state that servers write
_WEIGHTS = {"weights": True}  # likewise, of a network, which is in files of weights
_IN_PARTS = {"averages": True}  # likewise, of an average, of which workers write parts
_PARTS = "parts"  # the settings of an optimiser, of whose state workers write parts
_OF_PARTS = "of parts"  # what a worker's own optimiser remembers, if replicas differ
_STATES = "what has state_dict() and load_state_dict(), " + ACCEPTED


class Distributed(Protocol):
    """A distributed model. cut: if workers hold parts of it."""

    model: nn.Module

    @property
    def cut(self) -> CutModel | None: ...


@dataclass(frozen=True)
class _Weights:
    """The state of a module, of tensors alone."""

    tensors: Mapping[str, Any]


class SavedValues:
    """on_servers: networks on servers. distributed: the models that workers have."""

    def __init__(
        self, on_servers: Callable[[], Sequence[nn.Module]], distributed: Callable[[], Sequence[Distributed]]
    ) -> None:
        self._on_servers, self._distributed = on_servers, distributed
        self._checked: set[str] = set()

    def states(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """The states of what is saved, by name. Raises BadInput for what cannot be kept."""
        return {name: self._state_of(name, value) for name, value in named.items()}

    def own(self, named: Mapping[str, Any], states: Mapping[str, Any]) -> dict[str, Any]:
        """The part of these that this worker alone has, where each updates itself."""
        alike = nn.Module | ModelAverage | ServedAverage
        own = [name for name, value in named.items() if hasattr(value, "state_dict") and not isinstance(value, alike)]
        found = {name: states[name] for name in own}
        if (cut := self.cut(named.values())) is not None:
            held = [name for name in own if cut.holds(named[name])]
            found |= {name: {**states[name], _OF_PARTS: cut.state_of(named[name])} for name in held}
        return found

    def alike(self, states: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, Any] | None]:
        """States as they stand among what all workers have alike; and the weights that are a file of their own."""
        named, weights = dict(states), None
        if isinstance(of_model := named.get(MODEL), _Weights) and _WEIGHTS not in named.values():
            named[MODEL], weights = _WEIGHTS, of_model.tensors
        named = {name: {"state": one.tensors} if isinstance(one, _Weights) else one for name, one in named.items()}
        return named, weights

    def alike_optimizers(self, named: Mapping[str, Any]) -> dict[str, Optimizer]:
        """The optimisers among these, by name, of distributed models that all workers have whole."""
        whole = [one.model for one in self._distributed() if one.cut is None]
        known = {id(parameter) for model in whole for parameter in model.parameters()}
        return {name: one for name, one in named.items() if isinstance(one, Optimizer) and ids_of(one) <= known}

    def in_parts(
        self, named: Mapping[str, Any], rank: int, outer: Sequence[Any]
    ) -> Callable[[], Iterator[tuple[str, Savable]]] | None:
        """A function from names to this worker's files of a model that workers hold parts of; None: there are none.

        outer: the plain state of the outer rule of local steps.
        """
        cut = self.cut(named.values())
        return None if cut is None else lambda: cut.files(named, rank, outer)

    def cut(self, values: Iterable[Any]) -> CutModel | None:
        """The model that workers hold parts of, if it, an optimiser or an average of it is among `values`."""
        found, given = [one.cut for one in self._distributed() if one.cut is not None], list(values)
        return next((cut for cut in found if any(cut.holds(value) for value in given)), None)

    def taken_up(
        self, named: Mapping[str, Any], states: Mapping[str, Any], folder: Path, manifest: Manifest
    ) -> dict[str, Any]:
        """The values as they were saved: objects that have taken up their state, and plain values. Raises BadInput."""
        served, here = self._on_servers(), set[str]()
        if len(served) > 1 and _SERVED in states.values():
            load_weights(as_one(served), SavedWeights(folder, manifest))
            here = {name for name, state in states.items() if state == _SERVED}
        return {
            name: value if name in here else self._taken_up(name, value, states[name], folder, manifest)
            for name, value in named.items()
        }

    def _taken_up(self, name: str, value: Any, saved: Any, folder: Path, manifest: Manifest) -> Any:
        if "value" in saved:
            return saved["value"]
        if isinstance(value, ServedAverage):
            return value  # servers have read it
        cut = self.cut([value])
        blocks = None if cut is None else cut.holdings.blocks
        if isinstance(value, nn.Module) and (saved == _SERVED or (cut is not None and saved == _WEIGHTS)):
            load_weights(value, SavedWeights(folder, manifest), blocks)
            return value
        if not hasattr(value, "load_state_dict"):
            kind = type(value).__name__
            raise BadInput(
                f"worker.restore: {name} was saved as a state_dict(), and is a {kind}, which cannot load one"
            )
        if isinstance(value, ModelAverage) and saved == _IN_PARTS:
            value.take_up(OptimizerState.read(folder, manifest).within(blocks or {}))
        elif _PARTS in saved:
            self._load_optimizer(value, saved, folder, manifest)
        else:
            state = saved["state"] if saved != _WEIGHTS else _whole(SavedWeights(folder, manifest))
            value.load_state_dict(loadable(value, state) if isinstance(value, nn.Module) else state)
        if isinstance(value, Optimizer):
            value._opt_called = True  # type: ignore[attr-defined]  # in an earlier attempt: schedules ask, and warn
        return value

    def _load_optimizer(self, value: Optimizer, saved: Mapping[str, Any], folder: Path, manifest: Manifest) -> None:
        """Let it go on from its settings, and from what workers have written of its state, each a part."""
        cut, settings = self.cut([value]), saved[_PARTS]
        if cut is not None and _OF_PARTS in saved:
            cut.load_optimizer(value, settings, OptimizerState.from_plain(saved[_OF_PARTS]))
            return
        state = OptimizerState.read(folder, manifest, averages=False)
        if cut is not None:
            cut.load_optimizer(value, settings, state.within(cut.holdings.blocks))
            return
        models = [*(one.model for one in self._distributed()), *self._on_servers()]
        named = (pair for model in models for pair in named_parameters(model))
        take_up(value, settings, state, {id(parameter): name for name, parameter in named})

    def _state_of(self, name: str, value: Any) -> Any:
        on_servers = (unwrapped(one) for one in self._on_servers())
        if isinstance(value, ServedAverage) or any(unwrapped(value) is one for one in on_servers):
            return _SERVED
        if (cut := self.cut([value])) is not None:
            if isinstance(value, ModelAverage):
                return _IN_PARTS
            return _WEIGHTS if isinstance(value, nn.Module) else {_PARTS: cut.settings_of(value)}
        if isinstance(value, nn.Module):
            state = value.state_dict()
            if all(isinstance(one, nn.Module | nn.Parameter) or hasattr(one, "dtype") for one in state.values()):
                plain = plain_names(value)
                return _Weights({plain(key): one for key, one in state.items()})
        if hasattr(value, "state_dict"):
            state = value.state_dict()
            if name not in self._checked and not loads(state):
                raise BadInput(f"worker.save: the state_dict() of {name} holds more than {ACCEPTED}")
            self._checked.add(name)
            return {"state": state, **({AVERAGE: True} if isinstance(value, ModelAverage) else {})}
        found, refused = keepable(value)
        for where, kind in refused.items():
            raise BadInput(f"worker.save: {name}{where} is a {kind}; accepted: {_STATES}")
        return {"value": found}


def _whole(weights: SavedWeights) -> dict[str, Any]:
    return {name: weights.whole(name) for name in weights}
