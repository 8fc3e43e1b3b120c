"""Which layers of a network are cut, and how: as its user says, or by what follows what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from torch import nn

from volary.errors import SettingError
from volary.naming import named_modules
from volary.network.blocks.transformer import Block
from volary.partition.cutting.attention import MATRICES, has_own_heads
from volary.partition.cutting.recurrent import GATES, has_own_units

How = Literal["column", "row", "heads", "units"]
_ELEMENTWISE = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Softplus),
    *(nn.Tanh, nn.Sigmoid, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.Identity, nn.Dropout),
)


@dataclass(frozen=True)
class LayerCut:
    """The layer with that name is cut by columns or by rows, attention of torch's by its heads, LSTM by its units.

    apart: what a column gives stays with its ranks, for the row that follows, which takes it there. matrices, unit: see
    `volary.sharding.blocks.cut_evenly`.
    """

    layer: str
    how: How
    apart: bool = False
    matrices: int = 1
    unit: int = 1


@dataclass(frozen=True)
class Plan:
    """cuts: in the order of the network. dropouts: the layers between two that are apart, each with the first one.

    heads: attention whose heads are with different ranks, each with the layer that gives its queries, keys and values.
    """

    cuts: tuple[LayerCut, ...]
    dropouts: Mapping[str, str]
    heads: Mapping[str, str]


def plan_for(module: nn.Module, wanted: Mapping[str, How] | None, ranks: int) -> Plan:
    """The plan of `module` for so many ranks. wanted: how by layer; None: as `_chosen`. Raises SettingError."""
    users = users_of(module)
    layers = {name: part for name, part in reached(module) if _is_cuttable(part, users)}
    _refuse_unknown(module, layers, wanted or {})
    blocks = [] if wanted is not None else [name for name, part in named_modules(module) if _by_heads(part, ranks)]
    hows = dict(wanted) if wanted is not None else _chosen(module, layers, blocks, ranks)
    dropouts, apart = dict[str, str](), set[str]()
    for first, between, second in _pairs(module):
        if hows.get(first) == "column" and hows.get(second) == "row":
            apart |= {first, second}
            dropouts |= dict.fromkeys(between, first)
    found, heads = dict[str, LayerCut](), dict[str, str]()
    for name in blocks:
        block = module.get_submodule(name) if name else module
        assert isinstance(block, Block)
        unit = block.project.in_features // block.heads
        attend, project = _below(name, "attend"), _below(name, "project")
        found[attend] = LayerCut(attend, "column", apart=True, matrices=3, unit=unit)
        found[project] = LayerCut(project, "row", apart=True, unit=unit)
        heads[name] = attend
    for name, how in hows.items():
        _refuse_few(name, how, layers[name], ranks)
        layer = layers[name]
        if isinstance(layer, nn.MultiheadAttention):
            found[name] = LayerCut(name, how, matrices=MATRICES, unit=layer.head_dim)
        elif type(layer) in GATES:
            found[name] = LayerCut(name, how, matrices=GATES[type(layer)])
        elif name not in found:
            found[name] = LayerCut(name, how, name in apart)
    _refuse_shared(module, found, layers)
    return Plan(tuple(found[name] for name in layers if name in found), dropouts, heads)


def _chosen(module: nn.Module, layers: Mapping[str, nn.Module], blocks: list[str], ranks: int) -> dict[str, How]:
    """Columns then rows where a layer follows another one elementwise: one sum does for both. Of any other the side
    that is larger is cut, and the others get all. What shares its weight is cut alike, or not at all.
    """
    hows: dict[str, How] = {}
    for first, _, second in _pairs(module):
        if first not in hows and _size(layers[first], "column") >= ranks:
            hows |= {first: "column", second: "row"}
    taken = {_below(name, part) for name in blocks for part in ("attend", "project")}
    for name, layer in layers.items():
        if name not in hows and name not in taken:
            larger = max(hows_of(layer), key=lambda how: _size(layers[name], how))
            if _size(layer, larger) >= ranks:
                hows[name] = larger
    users = users_of(module)
    for names in _by_weight(layers):
        alike: dict[str, How] = {one: "row" if isinstance(layers[one], nn.Embedding) else "column" for one in names}
        fits = all(one in hows and _size(layers[one], how) >= ranks for one, how in alike.items())
        if len(names) < users[id(layers[names[0]].weight)]:
            hows = {name: how for name, how in hows.items() if name not in names}
        elif len(names) > 1:
            hows = {name: how for name, how in hows.items() if name not in names} | (alike if fits else {})
    return hows


def _pairs(module: nn.Module) -> Iterator[tuple[str, list[str], str]]:
    """Yield fully connected layers that follow each other with elementwise layers between: these are dropouts."""
    places = Counter(id(part) for _, part in module.named_modules(remove_duplicate=False))
    for name, part in reached(module):
        if type(part) is nn.Sequential:
            children = [(_below(name, child), one) for child, one in part.named_children()]
            yield from _in_order([(child, one) for child, one in children if places[id(one)] == 1])
        elif type(part) is Block:
            yield _below(name, "grow"), [], _below(name, "shrink")


def _in_order(children: list[tuple[str, nn.Module]]) -> Iterator[tuple[str, list[str], str]]:
    first, between = "", list[str]()
    for name, one in children:
        if type(one) is nn.Linear:
            if first:
                yield first, between, name
            first, between = name, []
        elif not isinstance(one, _ELEMENTWISE):
            first = ""
        elif type(one) is nn.Dropout:
            between.append(name)


def reached(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Name modules, but for what is within torch's own layers: these read its parameters where it does not."""
    inside = {
        id(one) for _, part in named_modules(module) if _is_closed(part) for one in part.modules() if one is not part
    }
    return ((name, part) for name, part in named_modules(module) if id(part) not in inside)


def _is_closed(part: nn.Module) -> bool:
    containers = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
    return type(part).__module__.startswith("torch.") and not isinstance(part, containers)


def hows_of(layer: nn.Module) -> tuple[How, ...]:
    """How a layer that can be cut can be, first what is usual."""
    if isinstance(layer, nn.MultiheadAttention):
        return ("heads",)
    if isinstance(layer, nn.RNNBase):
        return ("units",)
    return ("row", "column") if isinstance(layer, nn.Embedding) else ("column", "row")


def _is_cuttable(part: nn.Module, users: Mapping[int, int]) -> bool:
    if has_own_heads(part) or has_own_units(part):
        return all(users[id(one)] == 1 for one in part.parameters())
    if type(part) is nn.Embedding:
        return part.max_norm is None and not part.sparse and not part.scale_grad_by_freq
    return type(part) is nn.Linear


def _by_heads(part: nn.Module, ranks: int) -> bool:
    return type(part) is Block and part.heads >= ranks


def _size(layer: nn.Module, how: How) -> int:
    """How many entries are cut."""
    if isinstance(layer, nn.MultiheadAttention):
        return int(layer.num_heads)
    if isinstance(layer, nn.RNNBase):
        return layer.hidden_size
    if isinstance(layer, nn.Embedding):
        return layer.embedding_dim if how == "column" else layer.num_embeddings
    assert isinstance(layer, nn.Linear)
    return layer.out_features if how == "column" else layer.in_features


def _by_weight(layers: Mapping[str, nn.Module]) -> list[list[str]]:
    """The names of layers, those that have one weight together."""
    found: dict[int, list[str]] = {}
    for name, layer in layers.items():
        if isinstance(layer, nn.Linear | nn.Embedding):
            found.setdefault(id(layer.weight), []).append(name)
    return list(found.values())


def users_of(module: nn.Module) -> Counter[int]:
    """How many layers have a parameter, by its id."""
    return Counter(id(one) for part in module.modules() for one in part._parameters.values() if one is not None)


def _refuse_unknown(module: nn.Module, layers: Mapping[str, nn.Module], wanted: Mapping[str, How]) -> None:
    every = dict(named_modules(module))
    for name in wanted:
        if name not in every:
            known = ", ".join(layers) or "none"
            raise SettingError(f"plan names the layer {name!r}, which the network does not have; it can cut: {known}")
        if name not in layers:
            kind = type(every[name]).__name__
            raise SettingError(
                f"plan names {name}, a {kind}, which cannot be cut; accepted: fully connected layers, embeddings, "
                f"attention, LSTM and GRU ({', '.join(layers) or 'this network has none'})"
            )
        if wanted[name] not in hows_of(layers[name]):
            raise SettingError(
                f"plan cuts {name} by {wanted[name]}, and it is a {type(layers[name]).__name__}; accepted: "
                f"{' or '.join(hows_of(layers[name]))}"
            )


def _refuse_few(name: str, how: How, layer: nn.Module, ranks: int) -> None:
    if _size(layer, how) < ranks:
        others = [other for other in hows_of(layer) if other != how and _size(layer, other) >= ranks]
        instead, parts = others[0] if others else "to leave it out", how if how.endswith("s") else f"{how}s"
        raise SettingError(
            f"plan cuts {name} by {parts}, of which it has {_size(layer, how)}, over {ranks} workers; accepted: "
            f"{instead}, or fewer workers"
        )


def _refuse_shared(module: nn.Module, cuts: Mapping[str, LayerCut], layers: Mapping[str, nn.Module]) -> None:
    """A parameter that is cut belongs to layers which are cut alike."""
    users = users_of(module)
    for name in (one for one in cuts if cuts[one].how in ("column", "row")):
        weight = layers[name].weight
        alike = [other for other in cuts if getattr(layers[other], "weight", None) is weight]
        if len(alike) < users[id(weight)] or len({_dim(layers[other], cuts[other].how) for other in alike}) > 1:
            raise SettingError(
                f"plan cuts {name}, whose weight another layer shares, which is not cut the same way; accepted: "
                "column for a fully connected layer and row for the embedding that shares its weight, or neither"
            )


def _dim(layer: nn.Module, how: How) -> int:
    """The dimension of the layer's weight that is cut."""
    return int(how == "column") if isinstance(layer, nn.Embedding) else int(how == "row")


def _below(name: str, child: str) -> str:
    return f"{name}.{child}" if name else child
