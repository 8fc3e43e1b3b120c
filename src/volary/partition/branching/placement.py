"""Which layers some workers alone have, and where values come into them and leave them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from torch import nn

from volary.errors import SettingError
from volary.naming import named_modules, named_parameters
from volary.network.graph.form import PHASES
from volary.network.graph.module import GraphModule
from volary.partition.cutting.plans import reached
from volary.sharding.blocks import TensorBlock

if TYPE_CHECKING:
    from volary.network.graph.form import Phase

Workers = tuple[int, ...]
MOST_NAMES = 12  # that a refusal lists


def placed(module: nn.Module, on: Mapping[str, Sequence[int]], ranks: int) -> dict[str, Workers]:
    """By the name of each layer, or module of layers, that some of so many workers alone have: these workers.

    None of them is within another. Raises SettingError for names that fit nothing, or a layer of which two say
    different things, and for parameters that cannot be placed so.
    """
    layers = {name: part for name, part in reached(module) if name}
    found: dict[str, Workers] = {}
    for pattern, wanted in on.items():
        workers = tuple(sorted(wanted))
        fitting = [name for name in layers if name == pattern or fnmatchcase(name, pattern)]
        if not fitting:
            known = [name for name in layers if "." not in name]
            listed = ", ".join(known[:MOST_NAMES]) + (", ..." if len(known) > MOST_NAMES else "")
            raise SettingError(f"on names {pattern!r}, which fits no layer; accepted: {listed}, and what is in them")
        for name in _called(layers, fitting):
            for other, known_workers in found.items():
                if _is_within(name, other) or _is_within(other, name):
                    if known_workers == workers and name == other:
                        continue
                    raise SettingError(
                        f"on says of {name} and of {other}, which is {'it' if name == other else 'around or in it'}, "
                        "that workers have it; accepted: one of the two"
                    )
            found[name] = workers
    found = {name: workers for name, workers in found.items() if len(workers) < ranks}
    _refuse_what_cannot_be(module, layers, found)
    return {name: found[name] for name in layers if name in found}


def blocks_of(
    module: nn.Module, branches: Mapping[str, Workers], ranks: int
) -> Iterator[tuple[TensorBlock, Sequence[int]]]:
    """Yield of each parameter of these branches all of it, with the workers that have it, and none of it with the
    others.
    """
    layers, names = dict(named_modules(module)), {id(one): name for name, one in named_parameters(module)}
    done = set[int]()
    for branch, workers in branches.items():
        for one in layers[branch].parameters():
            if id(one) in done:
                continue
            done.add(id(one))
            name, shape = names[id(one)], tuple(one.shape)
            yield TensorBlock(name, shape, 0, ((0, shape[0]),)), workers
            yield TensorBlock(name, shape, 0, ((0, 0),)), [rank for rank in range(ranks) if rank not in workers]


@dataclass(frozen=True)
class Crossings:
    """A layer's crossings in one phase: which inputs come from elsewhere, and which outputs are read elsewhere."""

    enters: Sequence[bool]
    leaves: Sequence[bool]


def crossings(module: nn.Module, branches: Mapping[str, Workers]) -> dict[tuple[str, Phase], Crossings]:
    """By layer and phase, of layers of graphs; of other modules all that they are given and give crosses.

    Between layers of a graph that the same workers have nothing does.
    """
    found: dict[tuple[str, Phase], Crossings] = {}
    for prefix, graph in named_modules(module):
        if not isinstance(graph, GraphModule):
            continue
        for phase in PHASES:
            layers = [(wired, f"{prefix}.{path}".lstrip(".")) for wired, path in graph.layers(phase)]
            makers = {edge: branches.get(path) for wired, path in layers for edge in wired.makes}
            readers: dict[object, set[Workers | None]] = {edge: {None} for edge in graph.outputs(phase)}
            for wired, path in layers:
                for edge in wired.reads:
                    readers.setdefault(edge, set()).add(branches.get(path))
            for wired, path in layers:
                if (own := branches.get(path)) is not None:
                    found[path, phase] = Crossings(
                        [makers.get(edge) != own for edge in wired.reads],
                        [bool(readers.get(edge, set()) - {own}) for edge in wired.makes],
                    )
    return found


def _called(layers: Mapping[str, nn.Module], fitting: Sequence[str]) -> Iterator[str]:
    """Yield the outermost of these that are called: in place of a block that only holds layers, those."""
    outer = [name for name in fitting if not any(_is_within(name, other) and name != other for other in fitting)]
    for name in outer:
        if type(layers[name]) in (nn.Module, nn.ModuleList, nn.ModuleDict):
            yield from _called(layers, [f"{name}.{child}" for child, _ in layers[name].named_children()])
        else:
            yield name


def _is_within(name: str, other: str) -> bool:
    return name == other or name.startswith(f"{other}.")


def _refuse_what_cannot_be(module: nn.Module, layers: Mapping[str, nn.Module], found: Mapping[str, Workers]) -> None:
    """Raise SettingError for a parameter that is used elsewhere, too, for one of no dimension, and for a layer around a
    branch that is computed anew.
    """
    users: dict[int, set[Workers | None]] = {}
    for name, part in named_modules(module):
        workers = next((of for branch, of in found.items() if _is_within(name, branch)), None)
        for one in part._parameters.values():
            if one is not None:
                users.setdefault(id(one), set()).add(workers)
    names = {id(one): name for name, one in named_parameters(module)}
    for branch in found:
        for one in layers[branch].parameters():
            if len(users[id(one)]) > 1:
                raise SettingError(
                    f"on gives {branch} to some workers, and its parameter {names[id(one)]} is also of a layer that "
                    "others have; accepted: the same workers for both"
                )
            if not one.dim():
                raise SettingError(
                    f"on gives {branch} to some workers, and its parameter {names[id(one)]} is a single value without "
                    "a dimension; accepted: parameters of shape (1,) or more"
                )
        around = [name for name in layers if _is_within(branch, name) and name != branch]
        if anew := [name for name in around if "forward" in vars(layers[name])]:
            raise SettingError(
                f"train.recompute names {anew[0]}, and with partition=branches what is computed anew would be passed "
                f"anew between workers; accepted: layers within {branch}, or beside it"
            )
