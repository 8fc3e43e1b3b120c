"""A trained network as it travels to executors, and as a process of one computes with it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from volary.errors import BadInput
from volary.naming import named_modules
from volary.network.execution.inference import for_inference
from volary.network.graph.module import GraphModule
from volary.run.checkpoints import Checkpoints
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.session.spec import Session
from volary.spark.stored_runs import local_run
from volary.train.afterwards import load_trained
from volary.train.beginning.from_weights import read_session_weights
from volary.train.model import build_network
from volary.train.predicting.batch_sizes import MOST, BatchSizes

_KEPT = 2  # networks that a process keeps
_TRIED = 2  # rows of noise that a quicker network is compared on


@dataclass(frozen=True)
class ScoringNetwork:
    """A network as it travels to executors: the run's session, what its data was like, and weights as safetensors."""

    session: str
    input_shape: tuple[int, ...]
    classes: int
    weights: bytes

    @classmethod
    def of_run(cls, run: str | Path, step: int | None = None) -> ScoringNetwork:
        """The network of a run of a session, of its newest checkpoint or that of `step`. Raises BadInput, RunError.

        run: at a path, also in a store (`s3://bucket/runs/it`), or of that name in `runs/`.
        """
        with local_run(run, step) as here:
            return cls._of(here, step)

    @classmethod
    def _of(cls, run: str | Path, step: int | None) -> ScoringNetwork:
        directory = RunDirectory.existing(run)
        checkpoints = Checkpoints(directory.checkpoints)
        steps = checkpoints.steps()
        if not steps or (step is not None and step not in steps):
            wanted_one = "no checkpoint" if step is None else f"no checkpoint of step {step}"
            raise BadInput(
                f"{directory.path} has {wanted_one}; accepted: {', '.join(map(str, steps)) or 'another run'}"
            )
        with RunReader(directory) as reader:
            classes = int(reader.info()["classes"])
        module, shape = load_trained(directory, steps[-1] if step is None else step)
        return cls(directory.session.read_text(encoding="utf-8"), shape, classes, _packed(module))

    @classmethod
    def of_session(cls, session: Session, shape: Sequence[int], classes: int = 0) -> ScoringNetwork:
        """The network of a session with the weights of the file that its `network.weights` names, without a run.

        shape: of one input. classes: how many it tells apart; 0: as the session says. Raises BadInput if the session
        names no such file, and SettingError for one that does not fit.
        """
        if session.weights is None:
            raise BadInput("the session names no weights; accepted: network.weights=FILE, or VolaryModel.from_run")
        known = classes or int(getattr(session.network, "classes", None) or 0)
        module = build_network(session, tuple(shape), known)
        read_session_weights(session, module, tuple(shape), known)
        return cls(session.to_yaml(), tuple(shape), known, _packed(module))


def _packed(module: nn.Module) -> bytes:
    return save({name: value.clone() for name, value in module.state_dict().items()})


def session_of(text: str, overrides: Sequence[str] = ()) -> Session:
    """The session of a resolved file's text. Raises SessionError."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        return Session.read(file.name, overrides)


@dataclass(frozen=True)
class LoadedNetwork:
    """The network as a function from inputs (rows, ...) to outputs by name, "" the network's own, and how many rows are
    best for it at once.
    """

    compute: Callable[[Tensor], dict[str, Tensor]]
    sizes: BatchSizes


@lru_cache(maxsize=_KEPT)
def loaded(network: ScoringNetwork, layers: tuple[str, ...], answers: bool) -> LoadedNetwork:
    """The network, made once in a process, whichever task it is for. Raises as `_computing`."""
    module = build_network(session_of(network.session), network.input_shape, network.classes)
    module.load_state_dict(load(network.weights))
    noise = torch.rand(_TRIED, *network.input_shape, generator=torch.Generator().manual_seed(0))
    compute = _computing(for_inference(module.eval(), noise, layers), layers, answers=answers)
    return LoadedNetwork(compute, BatchSizes(0, MOST))


def _computing(module: nn.Module, layers: Sequence[str], *, answers: bool) -> Callable[[Tensor], dict[str, Tensor]]:
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
