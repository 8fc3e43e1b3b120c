"""Which layer reads what which layer makes: versions of edges, an order to run in, what is needed for an edge."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from volary.network.graph.form import Graph, NamedLayer, Phase
from volary.session.reading.problems import Problems, nearest

Edge = tuple[str, int]  # a name and a version: 0 as it was made first, one more with each layer in place


@dataclass(frozen=True)
class WiredLayer:
    """A layer, and the versions of edges that it reads and makes."""

    layer: NamedLayer
    reads: tuple[Edge, ...]
    makes: tuple[Edge, ...]


@dataclass(frozen=True)
class Wiring:
    """A graph in one phase. layers: in an order in which they can run. newest: of each edge name, its last version."""

    layers: tuple[WiredLayer, ...]
    inputs: tuple[Edge, ...]
    outputs: tuple[Edge, ...]
    newest: Mapping[str, Edge]

    def needed(self, fetched: Collection[Edge], fed: Collection[Edge]) -> tuple[WiredLayer, ...]:
        """The layers that have to run to get some edges if others are given, in their order."""
        wanted, found = set(fetched) - set(fed), []
        for wired in reversed(self.layers):
            if wanted.intersection(wired.makes):
                found.append(wired)
                wanted |= set(wired.reads) - set(fed)
        return tuple(reversed(found))


def wire(graph: Graph, phase: Phase) -> Wiring:
    """Connect the layers of one phase by the names of edges.

    A layer reads the newest version that layers written before it make, or, where there is none, the last version.
    Raises SessionError, with a sentence for each mistake: a name given twice, an edge that no layer makes or that two
    make, a circle, another number of edges than a kind of layer takes.
    """
    problems = Problems()
    layers = [layer for layer in graph.layers if layer.runs_in(phase)]
    _refuse_names_given_twice(layers, problems)
    _refuse_counts(layers, problems)
    makes, newest = _versions(graph, layers, problems)
    newest |= {alias: newest[edge] for alias, edge in graph.aliases.items() if edge in newest}
    wired, made = [], dict.fromkeys(graph.inputs, 0)
    for layer, made_here in zip(layers, makes, strict=True):
        known = {name: (name, made[name]) for name in layer.inputs if name in made}
        for name in layer.inputs:
            if name not in newest:
                problems.add(layer.place, _called(layer), _unmade(name, newest))
        reads = tuple(known.get(name) or newest.get(name, (name, 0)) for name in layer.inputs)
        wired.append(WiredLayer(layer, reads, made_here))
        made |= dict(made_here)
    others = {name for layer in graph.layers if not layer.runs_in(phase) for name in layer.outputs}
    for name in graph.outputs:
        if name not in newest and name not in others:
            problems.add(graph.place, "output", _unmade(name, newest))
    problems.raise_if_any()
    outputs = tuple(newest[name] for name in graph.outputs if name in newest)
    ordered = tuple(_ordered(wired, problems))
    problems.raise_if_any()
    return Wiring(ordered, tuple((name, 0) for name in graph.inputs), outputs, newest)


def _called(layer: NamedLayer) -> str:
    return f"layer {layer.name!r}"


def _unmade(name: str, known: Iterable[str]) -> str:
    near = nearest(name, known)
    return f"no layer makes the edge {name!r}" + (f"; did you mean {near!r}?" if near else "")


def _refuse_names_given_twice(layers: list[NamedLayer], problems: Problems) -> None:
    places: dict[str, str] = {}
    for layer in layers:
        if layer.name in places:
            first = f" (also {places[layer.name]})" if places[layer.name] else ""
            problems.add(layer.place, _called(layer), f"the name is given twice{first}; accepted: a name of its own")
        places.setdefault(layer.name, layer.place)


def _refuse_counts(layers: list[NamedLayer], problems: Problems) -> None:
    for layer in layers:
        kind, given = layer.kind, len(layer.inputs)
        most = f"up to {kind.most}" if kind.most is not None else "or more"
        accepted = f"{kind.fewest}" if kind.most == kind.fewest else f"{kind.fewest} {most}"
        if given < kind.fewest or (kind.most is not None and given > kind.most):
            problems.add(layer.place, _called(layer), f"has {given} inputs; accepted: {accepted}")
        if len(layer.outputs) != kind.gives:
            problems.add(layer.place, _called(layer), f"has {len(layer.outputs)} outputs; accepted: {kind.gives}")


def _versions(
    graph: Graph, layers: list[NamedLayer], problems: Problems
) -> tuple[list[tuple[Edge, ...]], dict[str, Edge]]:
    """The edges that each layer makes, and the newest version of each name."""
    newest = {name: (name, 0) for name in graph.inputs}
    makers: dict[str, str] = dict.fromkeys(graph.inputs, "the network's input")
    found = []
    for layer in layers:
        made = []
        for name in layer.outputs:
            if name in makers and name not in layer.inputs:
                problems.add(layer.place, _called(layer), f"makes the edge {name!r}, which {makers[name]} makes too")
            version = newest[name][1] + 1 if name in newest else 0
            newest[name] = (name, version)
            makers[name] = _called(layer)
            made.append((name, version))
        found.append(tuple(made))
    return found, newest


def _ordered(wired: list[WiredLayer], problems: Problems) -> Iterator[WiredLayer]:
    """The layers so that each stands behind those that it reads from, else as they were written (Kahn 1962)."""
    maker = {edge: number for number, one in enumerate(wired) for edge in one.makes}
    waits_for = [{maker[edge] for edge in one.reads if edge in maker} for one in wired]
    readers: list[list[int]] = [[] for _ in wired]
    for number, before in enumerate(waits_for):
        for one in before:
            readers[one].append(number)
    missing = [len(before) for before in waits_for]
    ready = [number for number, count in enumerate(missing) if not count]
    while ready:
        number = heapq.heappop(ready)
        yield wired[number]
        for reader in readers[number]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    if any(missing):
        circle = [wired[number].layer for number in _circle(waits_for, missing)]
        names = " -> ".join(layer.name for layer in [*circle, circle[0]])
        problems.add(circle[0].place, _called(circle[0]), f"reads what is made of its own output: {names}")


def _circle(waits_for: list[set[int]], missing: list[int]) -> list[int]:
    """Numbers of layers each of which is read by the next, the last by the first."""
    number, path = next(one for one, count in enumerate(missing) if count), []
    while number not in path:
        path.append(number)
        number = min(one for one in waits_for[number] if missing[one])
    return path[path.index(number) :][::-1]
