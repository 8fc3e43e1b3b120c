"""A network's list to a graph: blocks and repeats are written out, layers get names, names of edges are looked up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from volary.errors import SettingError
from volary.network.graph.form import Graph, NamedLayer, Phase
from volary.network.layers import ROOM
from volary.network.layers._base import LayerKind
from volary.network.written.blocks import WrittenBlock
from volary.network.written.custom import CustomLayer
from volary.network.written.entry import WrittenEntry, read_entry
from volary.plugins import unknown
from volary.session.reading.node import FAULT, from_python
from volary.session.reading.problems import Problems, nearest
from volary.session.reading.reader import Reader

REPEAT = "repeat"
MOST_LAYERS = 20_000  # a few nested repeats can mean billions


class Ref(NamedTuple):
    """An edge by the name that is written in a scope; None: by its name in the graph."""

    name: str
    scope: _Scope | None


@dataclass(frozen=True)
class _Scope:
    """Where names are looked up: in a block, or in one round of a repeat, which also sees what is around it.

    prefix: of the names in it. given: the edges that a block is given, by the names of its inputs.
    """

    prefix: str = ""
    around: _Scope | None = None
    given: Mapping[str, Ref] = field(default_factory=dict)
    blocks: tuple[str, ...] = ()  # that it is within
    phase: Phase | None = None  # of all layers in it that have none of their own
    counts: dict[str, int] = field(default_factory=dict, compare=False)

    def name(self, entry: WrittenEntry, taken: Mapping[str, Any], reserved: set[str]) -> str:
        """The entry's name in the graph: as it says, or its word with a number."""
        if entry.name is not None:
            return self.prefix + entry.name
        word = entry.word.rpartition(":")[2].rpartition(".")[2].lower()  # of "file.py:Class" the class
        while True:
            self.counts[word] = self.counts.get(word, 0) + 1
            name = f"{word}{self.counts[word]}"
            if name not in reserved and self.prefix + name not in taken:
                return self.prefix + name


class Expansion:
    """Writes a list out, once; mistakes are noted as problems, each with the path of what was written."""

    def __init__(self, blocks: Mapping[str, WrittenBlock], problems: Problems) -> None:
        self._blocks, self._problems = blocks, problems
        self._drafts: list[tuple[NamedLayer, tuple[Ref, ...]]] = []
        self._edges: set[str] = set()
        self._aliases: dict[str, Ref] = {}  # a block's or repeat's name stands for the edges that it gives
        self._names: dict[str, WrittenEntry] = {}

    def graph(self, written: Sequence[Any], inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Graph:
        """The graph of a whole network; outputs: empty: the edges of the last entry."""
        self._edges.update(inputs)
        top = _Scope()
        last = self._list(written, "layers", top, tuple(Ref(name, None) for name in inputs))
        layers = []
        for layer, refs in self._drafts:
            found = [self._edge(ref, f"{layer.place}.inputs", layer.name) for ref in refs]
            layers.append(replace(layer, inputs=tuple(edge for edge in found if edge is not None)))
        given = tuple(Ref(name, top) for name in outputs) or last
        ends = [self._edge(ref, "output", "") for ref in given]
        aliases = {name: edge for name, ref in self._aliases.items() if (edge := self._followed(ref)) is not None}
        return Graph(layers=tuple(layers), inputs=inputs, outputs=tuple(edge for edge in ends if edge), aliases=aliases)

    def _list(self, written: Sequence[Any], path: str, scope: _Scope, before: tuple[Ref, ...]) -> tuple[Ref, ...]:
        """Write out entries one after another; `before`: what the first reads. Returns what the last gives."""
        read = (read_entry(one, f"{path}.{place}", self._problems) for place, one in enumerate(written))
        entries = [entry for entry in read if entry is not None]
        reserved = {entry.name for entry in entries if entry.name is not None}
        for entry in entries:
            if len(self._drafts) > MOST_LAYERS:
                self._problems.add("", entry.path, f"more than {MOST_LAYERS:,} layers; accepted: fewer repeats")
                self._problems.raise_if_any()
            name = scope.name(entry, self._names, reserved)
            self._refuse_taken(name, entry)
            self._names[name] = entry
            if entry.share and (entry.word == REPEAT or entry.word in self._blocks):
                self._problems.add(
                    "", f"{entry.path}.share", "is for a layer; accepted: `share` of layers in the block"
                )
            refs = before if entry.inputs is None else tuple(Ref(one, scope) for one in entry.inputs)
            if entry.word == REPEAT:
                before = self._repeat(entry, name, scope, refs)
            elif entry.word in self._blocks:
                before = self._block(entry, name, scope, refs)
            else:
                before = self._layer(entry, name, scope, refs)
        return before

    def _refuse_taken(self, name: str, entry: WrittenEntry) -> None:
        """Two layers of different phases may have one name."""
        other = self._names.get(name)
        if other is not None and None in (other.phase, entry.phase, None if other.phase == entry.phase else 0):
            self._problems.add("", entry.path, f"the name {name!r} is given twice; accepted: a name of its own")

    def _layer(self, entry: WrittenEntry, name: str, scope: _Scope, refs: tuple[Ref, ...]) -> tuple[Ref, ...]:
        kind = self._kind(entry)
        if kind is None:
            return (self._made(name),)
        edges = tuple(scope.prefix + edge for edge in entry.edges or ())
        if not edges:
            edges = (name,) if kind.gives == 1 else tuple(f"{name}.{place}" for place in range(kind.gives))
        layer = NamedLayer(
            name=name,
            kind=kind,
            inputs=(),
            outputs=edges,
            phase=entry.phase or scope.phase,
            shares=entry.share,
            place=entry.path,
        )
        self._drafts.append((layer, refs))
        return tuple(self._made(edge) for edge in edges)

    def _made(self, edge: str) -> Ref:
        self._edges.add(edge)
        return Ref(edge, None)

    def _kind(self, entry: WrittenEntry) -> LayerKind | None:
        reader = Reader(self._problems)
        node = from_python(entry.settings, "", Path.cwd())
        if ":" in entry.word:
            return CustomLayer(reference=entry.word, arguments=entry.settings)
        word, fixed = ROOM.unfolded(entry.word)
        try:
            plugin = ROOM.load(word)
        except SettingError as error:
            known = [*ROOM.names(), *ROOM.aliases, *self._blocks, REPEAT]
            stranger = str(unknown(entry.word, known)).replace("name", "layer", 1)
            self._problems.add("", entry.path, str(error) if word in known else stranger)
            return None
        for setting in sorted(entry.settings.keys() & fixed):
            sentence = f"is {fixed[setting]!r} by the name {entry.word!r}; accepted: another {setting} with {word}"
            self._problems.add("", f"{entry.path}.{setting}", sentence)
            return None
        made = reader.build(plugin, from_python({**node.plain(), **fixed}, "", Path.cwd()), entry.path)
        return None if made is FAULT else made

    def _repeat(self, entry: WrittenEntry, name: str, scope: _Scope, refs: tuple[Ref, ...]) -> tuple[Ref, ...]:
        times, block = entry.settings.get("times"), entry.settings.get("block")
        for key in entry.settings:
            if key not in ("times", "block"):
                self._problems.add("", f"{entry.path}.{key}", "unknown; Known: times, block, name, inputs")
        if type(times) is not int or times < 1:
            self._problems.add("", f"{entry.path}.times", f"is {times!r}; accepted: a whole number from 1")
            times = 1
        if not isinstance(block, str | Mapping | list) or not block:
            self._problems.add("", f"{entry.path}.block", "accepted: a layer or a block, or a list of them")
            return refs
        written = block if isinstance(block, list) else [block]
        phase = entry.phase or scope.phase
        for turn in range(times):
            inside = _Scope(f"{name}.{turn}.", scope, blocks=scope.blocks, phase=phase)
            refs = self._list(written, f"{entry.path}.block", inside, refs)
        self._aliases.update(_named(name, entry, scope, refs))
        return refs

    def _block(self, entry: WrittenEntry, name: str, scope: _Scope, refs: tuple[Ref, ...]) -> tuple[Ref, ...]:
        block = self._blocks[entry.word]
        if entry.word in scope.blocks:
            self._problems.add("", entry.path, f"block {entry.word!r} is made of itself")
            return refs
        if len(refs) != len(block.inputs):
            takes = f"{len(block.inputs)} inputs ({', '.join(block.inputs)})"
            self._problems.add("", entry.path, f"block {entry.word!r} takes {takes}; it is given {len(refs)}")
            return refs
        noted = len(self._problems.found)
        layers = block.filled(entry.settings, entry.path, self._problems)
        if len(self._problems.found) > noted:
            return refs
        given = dict(zip(block.inputs, refs, strict=True))
        inside = _Scope(f"{name}.", None, given, (*scope.blocks, entry.word), entry.phase or scope.phase)
        path = block.path or f"{entry.path}.layers"
        last = self._list(layers, path, inside, refs if len(refs) == 1 else ())
        gives = tuple(Ref(output, inside) for output in block.outputs) or last
        self._aliases.update(_named(name, entry, scope, gives, block.outputs))
        return gives

    def _edge(self, ref: Ref, path: str, layer: str) -> str | None:
        edge = self._followed(ref)
        if edge is None:
            near = nearest(ref.name, self._visible(ref.scope))
            hint = f"; did you mean {near!r}?" if near else ""
            of = f"layer {layer!r}: " if layer else ""
            self._problems.add("", path, f"{of}no layer makes the edge {ref.name!r}{hint}")
        return edge

    def _followed(self, ref: Ref) -> str | None:
        """The name in the graph, looked up from the innermost scope outward."""
        name, scope = ref
        if scope is None:
            return name
        while scope is not None:
            if name in scope.given:
                return self._followed(scope.given[name])
            full = scope.prefix + name
            if full in self._edges:
                return full
            if full in self._aliases:
                return self._followed(self._aliases[full])
            scope = scope.around
        return None

    def _visible(self, scope: _Scope | None) -> Iterator[str]:
        while scope is not None:
            yield from scope.given
            names = (*self._edges, *self._aliases)
            yield from (name.removeprefix(scope.prefix) for name in names if name.startswith(scope.prefix))
            scope = scope.around


def _named(
    name: str, entry: WrittenEntry, scope: _Scope, refs: tuple[Ref, ...], outputs: tuple[str, ...] = ()
) -> dict[str, Ref]:
    """The names under which the edges of a block or repeat are known around it."""
    if entry.edges is not None:
        names = [scope.prefix + edge for edge in entry.edges]
    elif len(refs) == 1:
        names = [name]
    else:
        names = [f"{name}.{outputs[place] if outputs else place}" for place in range(len(refs))]
    return dict(zip(names, refs, strict=False))
