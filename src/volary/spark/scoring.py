"""A trained network over columns: what comes out as which column, checked with one row, then for batch after batch."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from volary.errors import BadInput
from volary.errors.raised import raised
from volary.executors.arrays import ColumnLayout, inputs_of
from volary.naming import named_modules
from volary.network.criteria.classification import Classification
from volary.network.graph.module import GraphModule
from volary.run.checkpoints import Checkpoints
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.session.spec import Session
from volary.train.model import build_criterion, build_network
from volary.train.state.weights import SavedWeights, load_weights

PREDICTION, PROBABILITY = "prediction", "probability"
_ANSWERS = (PREDICTION, PROBABILITY)
_ROWS = 256  # through the network at once
_KEPT = 2  # networks that a process keeps


@dataclass(frozen=True)
class ScoringNetwork:
    """A network as it travels to executors: the run's session, what its data was like, and weights as safetensors."""

    session: str
    input_shape: tuple[int, ...]
    classes: int
    weights: bytes

    @classmethod
    def of_run(cls, run: str | Path, step: int | None = None) -> ScoringNetwork:
        """The network of a run of a session, of its newest checkpoint or that of `step`. Raises BadInput, RunError."""
        directory = RunDirectory.existing(run)
        checkpoints = Checkpoints(directory.checkpoints)
        steps = checkpoints.steps()
        if not steps or (step is not None and step not in steps):
            wanted_one = "no checkpoint" if step is None else f"no checkpoint of step {step}"
            raise BadInput(
                f"{directory.path} has {wanted_one}; accepted: {', '.join(map(str, steps)) or 'another run'}"
            )
        with RunReader(directory) as reader:
            info = reader.info()
        wanted = steps[-1] if step is None else step
        shape = tuple(map(int, filter(None, info["input_shape"].split(","))))
        session = directory.session.read_text(encoding="utf-8")
        module = build_network(Session.read(directory.session), shape, int(info["classes"]))
        load_weights(module, SavedWeights(checkpoints.path(wanted), checkpoints.verify(wanted)))
        return cls(session, shape, int(info["classes"]), save({k: v.clone() for k, v in module.state_dict().items()}))


@dataclass(frozen=True)
class Scoring:
    """Which columns a network makes of which others. outputs: `prediction`, `probability`, or names of layers.

    classifies: whether the network's output are scores of classes. shapes: of each output, without the rows.
    """

    network: ScoringNetwork
    layout: ColumnLayout
    outputs: tuple[str, ...]
    classifies: bool
    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def tried(cls, network: ScoringNetwork, layout: ColumnLayout, outputs: Sequence[str]) -> Scoring:
        """Try the network on a row of zeros. Raises BadInput if it does not take the columns, or has no such output."""
        classifies = isinstance(build_criterion(session_of(network.session)), Classification)
        if PROBABILITY in outputs and not classifies:
            raise BadInput("outputs: 'probability' is of networks that tell classes apart; accepted: prediction")
        if len(set(outputs)) < len(outputs) or not outputs:
            raise BadInput(f"outputs is {', '.join(outputs) or 'empty'}; accepted: names, each once")
        if layout.kind == "numbers" and not layout.shape and network.input_shape != (len(layout.inputs),):
            raise BadInput(
                f"inputs are {len(layout.inputs)} columns of numbers, and the network takes {network.input_shape}"
            )
        loose = cls(network, layout, tuple(outputs), classifies, {})
        found = loose.values(np.zeros((1, *network.input_shape), np.float32))
        return cls(network, layout, tuple(outputs), classifies, {name: v.shape[1:] for name, v in found.items()})

    def schema(self) -> str:
        """The columns that are made, as Spark names their types: numbers, or arrays of all values of a row."""
        kinds = {name: "array<float>" if prod(shape) != 1 or shape else "double" for name, shape in self.shapes.items()}
        return ", ".join(f"`{name}` {kind}" for name, kind in kinds.items())

    def values(self, inputs: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """The outputs (rows, ...) of inputs (rows, ...). Raises BadInput for inputs that the network does not take."""
        if inputs.shape[1:] != self.network.input_shape and inputs[:1].size == prod(self.network.input_shape):
            inputs = inputs.reshape(len(inputs), *self.network.input_shape)
        layers = tuple(name for name in self.outputs if name not in _ANSWERS)
        compute = _loaded(self.network, layers, len(layers) < len(self.outputs))
        try:
            found = compute(torch.from_numpy(np.ascontiguousarray(inputs)))
        except Exception as error:  # whatever a network of the user's own raises
            shape = self.network.input_shape
            raise BadInput(f"the network takes {shape}, not {inputs.shape[1:]}: {raised(error).error}") from error
        return {name: found[name].numpy() if name in found else self._answer(name, found[""]) for name in self.outputs}

    def columns(self, *columns: Any) -> Any:
        """Make an Arrow array of structures of Arrow's columns of the layout."""
        arrow: Any = import_module("pyarrow")
        inputs = inputs_of(arrow.RecordBatch.from_arrays(list(columns), names=list(self.layout.inputs)), self.layout)
        if inputs.dtype == np.uint8:
            inputs = inputs.astype(np.float32) / 255
        parts = [self.values(inputs[first : first + _ROWS]) for first in range(0, len(inputs), _ROWS)]
        made = []
        for name, shape in self.shapes.items():
            found = np.concatenate([part[name] for part in parts]) if parts else np.empty((0, *shape), np.float32)
            made.append(_column(arrow, found, shape))
        return arrow.StructArray.from_arrays(made, names=list(self.shapes))

    def _answer(self, name: str, output: Tensor) -> np.ndarray[Any, Any]:
        if name == PROBABILITY:
            found = output.softmax(-1)
        elif self.classifies:
            found = output.argmax(-1).double()
        else:
            found = output.squeeze(-1).double() if output.shape[1:] == (1,) else output
        return found.numpy()


def session_of(text: str, overrides: Sequence[str] = ()) -> Session:
    """The session of a resolved file's text. Raises SessionError."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        return Session.read(file.name, overrides)


_Compute = Callable[[Tensor], dict[str, Tensor]]


@lru_cache(maxsize=_KEPT)
def _loaded(network: ScoringNetwork, layers: tuple[str, ...], answers: bool) -> _Compute:
    """The network as a function, made once in a process, whichever task it is for."""
    module = build_network(session_of(network.session), network.input_shape, network.classes)
    module.load_state_dict(load(network.weights))
    return _computing(module.eval(), layers, answers=answers)


def _computing(module: nn.Module, layers: Sequence[str], *, answers: bool) -> _Compute:
    """A function from inputs (rows, ...) to the outputs of layers by name, and with `answers` the network's as "".

    Raises BadInput if there is no such layer.
    """
    edges = module.edges if isinstance(module, GraphModule) else ()
    modules = {name: part for name, part in named_modules(module) if name}
    found: dict[str, Tensor] = {}

    def kept(name: str) -> Callable[..., None]:
        def keep(_part: nn.Module, _inputs: Any, output: Any) -> None:
            found[name] = _first(output).detach().clone()  # cloned: the next layer may write into it

        return keep

    for name in layers:
        if name not in edges and name not in modules:
            known = dict.fromkeys((*edges, *modules))
            raise BadInput(f"outputs: the network has no layer {name!r}; accepted: {', '.join(known)}")
        if name not in edges:
            modules[name].register_forward_hook(kept(name))

    of_edges = [name for name in layers if name in edges]
    whole = not of_edges or answers or len(of_edges) < len(layers)  # or else what comes after those edges does not run

    @torch.no_grad()
    def compute(inputs: Tensor) -> dict[str, Tensor]:
        found.clear()
        if whole:
            found[""] = _first(module(inputs))
        if of_edges and isinstance(module, GraphModule):
            found.update(module.run({module.inputs[0]: inputs}, of_edges))
        return {name: value.float() for name, value in found.items()}

    return compute


def _first(output: Any) -> Tensor:
    first: Tensor = output[0] if isinstance(output, tuple) else output
    return first


def _column(arrow: Any, values: np.ndarray[Any, Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return arrow.array(values.astype(np.float64))
    flat = values.astype(np.float32).reshape(len(values), prod(shape))
    offsets = np.arange(len(values) + 1, dtype=np.int32) * flat.shape[1]
    return arrow.ListArray.from_arrays(offsets, flat.ravel())
