"""A network as a chain: the smallest parts that run one after another, each fed by the one before it alone.

torch.fx writes down which layer feeds which. Where a single tensor is all that later layers read of earlier ones, the
network may be cut; what a skip connection spans is one link. A module whose code torch.fx cannot follow, or that does
something else in training than in evaluation, is one link, too.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import fx, nn

from volary.errors import SettingError
from volary.naming import named_parameters
from volary.network.evaluating import evaluating

_NO_TENSORS = ("size", "dim", "numel", "getattr", "__len__")  # what they give is no tensor


@dataclass(frozen=True)
class ChainLink:
    """Part of a chain. layers: their names, one at least. nodes: of the network's graph. gives: what the next reads.

    name: that of its first layer; of one that runs again with how often it has by then, as `dropout:2`.
    """

    name: str
    layers: Sequence[str]
    nodes: Sequence[fx.Node]
    gives: fx.Node

    def has(self, layer: str) -> bool:
        """Whether it has the layer with this name, by itself or within one of its own."""
        return any(layer == one or layer.startswith(f"{one}.") for one in self.layers)


@dataclass(frozen=True)
class Chain:
    """The links of `module`, in the order in which they run."""

    module: nn.Module
    links: Sequence[ChainLink]

    def part(self, start: int, end: int) -> fx.GraphModule:
        """The links from `start` to `end` as a module of one tensor, of any shape, to one.

        Its layers and parameters are the network's, under the same names.
        """
        graph = fx.Graph()
        nodes = [node for link in self.links[start:end] for node in link.nodes]
        known: dict[fx.Node, fx.Node] = {}
        handed = graph.placeholder("x")

        def copied(node: fx.Node) -> fx.Node:
            if node not in known:
                known[node] = graph.node_copy(node, copied) if node.op == "get_attr" else handed
            return known[node]

        for node in nodes:
            known[node] = graph.node_copy(node, copied)
        graph.output(known[self.links[end - 1].gives])
        return fx.GraphModule(self.module, graph)

    @cached_property
    def parameters(self) -> Sequence[Mapping[str, nn.Parameter]]:
        """The parameters that each link reads, by name."""
        return [dict(named_parameters(self.part(at, at + 1))) for at in range(len(self.links))]

    def legal(self) -> list[int]:
        """The links before which the chain may be cut: no parameter is read on both sides."""
        last: dict[int, int] = {}
        first: dict[int, int] = {}
        for number in range(len(self.links)):
            for parameter in self.parameters[number].values():
                first.setdefault(id(parameter), number)
                last[id(parameter)] = number
        spans = [(first[one], last[one]) for one in first]
        return [at for at in range(1, len(self.links)) if not any(low < at <= high for low, high in spans)]

    def place(self, name: str) -> int:
        """The link that begins with the layer `name`, or with the first one within it.

        Raises SettingError if there is none, or the chain cannot be cut there; it names places that can.
        """
        number, begins = self._found(name)
        legal = self.legal()
        if begins and number in legal:
            return number
        near = sorted(legal, key=lambda at: abs(at - number))[:2]
        places = " or ".join(repr(self.links[at].name) for at in sorted(near)) or "one stage"
        why = f"what skip connections join begins with {self.links[number].name!r}"
        if begins:
            why = f"{self._tied(number)} is used on both sides" if number else "the network begins there"
        raise SettingError(f"stages: the network cannot be cut before {name!r}, as {why}; accepted: {places}")

    def _found(self, name: str) -> tuple[int, bool]:
        """The link with this layer, and whether that is its first one."""
        for number, link in enumerate(self.links):
            if link.name == name:
                return number, True
            for layer in link.layers:
                if layer == name or layer.startswith(f"{name}."):
                    return number, layer == link.layers[0]
        names = [link.name for link in self.links[1:]]
        raise SettingError(f"stages: the network has no layer {name!r}; accepted: {', '.join(map(repr, names))}")

    def _tied(self, at: int) -> str:
        before = {id(one): name for link in range(at) for name, one in self.parameters[link].items()}
        behind = [id(one) for link in range(at, len(self.links)) for one in self.parameters[link].values()]
        return repr(next(before[one] for one in behind if one in before))


def chain_of(module: nn.Module, partition: str = "pipeline") -> Chain:
    """Find the chain of `module`, which takes one tensor.

    partition: which needs it. Raises SettingError if its code cannot be followed.
    """
    tracing = _Tracing()
    graph = tracing.graph(module)
    if graph is None or len([node for node in graph.nodes if node.op == "placeholder"]) != 1:
        raise SettingError(
            f"partition={partition}: the code of {type(module).__name__}.forward cannot be followed layer by layer; "
            "accepted: torch.nn.Sequential, or a forward of one tensor, without conditions that depend on it or on "
            "self.training"
        )
    return Chain(module, list(_links(graph, dict(module.named_modules()))))


class _Tracing:
    """Graphs of modules and of their parts, each looked at once."""

    def __init__(self) -> None:
        self._found: dict[int, fx.Graph | None] = {}

    def graph(self, module: nn.Module) -> fx.Graph | None:
        """The graph of a module's layers; None if that cannot be told, or changes with its mode."""
        if id(module) not in self._found:
            self._found[id(module)] = self._looked_at(module)
        return self._found[id(module)]

    def _looked_at(self, module: nn.Module) -> fx.Graph | None:
        before = set(vars(module))
        try:
            graph = _LayerTracer(self).trace(module)
            with evaluating(module):
                resting = _LayerTracer(self).trace(module)
        except Exception:  # of code that is not made for being traced
            return None
        finally:
            constants = set(vars(module)) - before  # torch.fx keeps what code computes without an input in the module
            for name in constants:
                delattr(module, name)
        return graph if str(graph) == str(resting) and not constants else None


class _LayerTracer(fx.Tracer):
    """Goes into modules, up to layers and to those that it cannot follow."""

    def __init__(self, tracing: _Tracing) -> None:
        super().__init__()
        self._tracing = tracing

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        parts = any(True for _ in m.children())
        own = any(True for _ in m.parameters(recurse=False))
        return own or not parts or self._tracing.graph(m) is None


def _links(graph: fx.Graph, modules: dict[str, nn.Module]) -> Iterator[ChainLink]:
    """The graph's nodes, cut wherever they can be."""
    order = {node: place for place, node in enumerate(graph.nodes)}
    last_use = {node: max((order[user] for user in node.users), default=-1) for node in graph.nodes}
    piece, begun = list[fx.Node](), Counter[str]()
    for node in graph.nodes:
        at = order[node]
        read = [one for one in graph.nodes if order[one] < at <= last_use[one] and one.op != "get_attr"]
        ends = node.op == "output" or (len(read) == 1 and read[0] in piece and _may_cross(read[0], node, modules))
        if piece and ends:
            layers = [str(one.target) for one in piece if one.op == "call_module"] or [piece[0].name]
            begun[layers[0]] += 1
            again = f":{begun[layers[0]]}" if begun[layers[0]] > 1 else ""
            yield ChainLink(layers[0] + again, layers, piece, read[0])
            piece = []
        if node.op not in ("placeholder", "output"):
            piece.append(node)


def _may_cross(value: fx.Node, first: fx.Node, modules: dict[str, nn.Module]) -> bool:
    """Whether a value is a tensor that may travel: nobody picks it apart, and what comes first leaves it as it is."""
    name = value.target if isinstance(value.target, str) else getattr(value.target, "__name__", "")
    if name in _NO_TENSORS or any(user.target is operator.getitem for user in value.users):
        return False
    in_place = bool(first.kwargs.get("inplace"))
    if first.op == "call_module":
        in_place = bool(getattr(modules[str(first.target)], "inplace", False))
    elif first.op == "call_method":
        in_place = str(first.target).endswith("_") and not str(first.target).endswith("__")
    return not in_place
