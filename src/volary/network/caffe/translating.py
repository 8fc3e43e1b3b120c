"""A network file as a graph: which layer becomes what, and which blobs the network gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.network.caffe.source import PHASES, CaffePhase, NetSource, path_of
from volary.network.caffe.types.parameters import parameters_of
from volary.network.caffe.types.registry import ALIASES, DATA, IGNORED, INPUT, LAYERS, LOSSES, MEASURES
from volary.network.caffe.types.translation import CaffeLayer, Translated
from volary.network.graph.form import Graph, NamedLayer, Phase

if TYPE_CHECKING:
    from volary.network.caffe.message import CaffeMessage
    from volary.network.layers._base import Shape

TORCH_PHASE: dict[CaffePhase, Phase] = {"TRAIN": "train", "TEST": "evaluate"}


@dataclass(frozen=True)
class NamedTranslation:
    """A layer of a file beside the layer of the graph that it became."""

    message: CaffeMessage
    layer: NamedLayer
    translated: Translated


@dataclass
class Translation:
    """A network as a graph.

    layers: those that have become layers of it, in order. losses: of each phase the loss layers, in order.
    """

    graph: Graph
    layers: list[NamedTranslation] = field(default_factory=list)
    losses: dict[CaffePhase, list[CaffeMessage]] = field(default_factory=dict)


class Translator:
    """Goes through a file's layers in each phase; what is wrong with one is noted, and the others are looked at."""

    def __init__(self, source: NetSource, inputs: Mapping[str, Shape], outputs: tuple[str, ...] = ()) -> None:
        """inputs: of each blob that it is fed, the shape of one sample. outputs: blobs; none: what it is for."""
        self._source, self._inputs, self._asked = source, dict(inputs), outputs
        self._found = Translation(Graph(layers=()))
        self._outputs: dict[CaffePhase, tuple[str, ...]] = {}

    def translate(self) -> Translation:
        """The graph. Raises SettingError with a sentence for each layer that does not fit."""
        for phase in PHASES:
            self._go_through(phase)
        self._source.findings.raise_if_any()
        outputs = self._asked or tuple(dict.fromkeys([*self._outputs["TEST"], *self._outputs["TRAIN"]]))
        graph = Graph(
            layers=tuple(one.layer for one in self._found.layers),
            inputs=tuple(self._inputs),
            outputs=outputs,
            place=self._source.file,
        )
        self._found.graph = graph
        return self._found

    def _go_through(self, phase: CaffePhase) -> None:
        shapes: dict[str, Shape | None] = dict(self._inputs)  # None: of what a layer makes that does not fit
        edges: dict[str, str] = {}  # blobs with another name for an edge
        losses: list[CaffeMessage] = []
        read: set[str] = set()
        made: dict[str, None] = {}
        for message in self._source.layers[phase]:
            sort = message.one("type")
            if sort in (INPUT, *DATA, *IGNORED):
                continue
            if sort in ALIASES:
                edges.update(dict.fromkeys(message.all("top"), _edge(edges, message.all("bottom")[0])))
                continue
            if sort in LOSSES:
                losses.append(message)
            if sort in LOSSES or sort in MEASURES:
                continue
            bottoms = [_edge(edges, one) for one in message.all("bottom")]
            if self._layer(message, phase, bottoms, shapes):
                read.update(one for one in bottoms if one not in message.all("top"))
                made.update(dict.fromkeys(message.all("top")))
        self._found.losses[phase] = losses
        self._outputs[phase] = _outputs(losses, [one for one in made if one not in read])

    def _layer(
        self, message: CaffeMessage, phase: CaffePhase, bottoms: list[str], shapes: dict[str, Shape | None]
    ) -> bool:
        """Add a layer to the graph, and the shapes that it makes; whether that went well."""
        findings, name = self._source.findings, message.one("name")
        for one in (one for one in bottoms if one not in shapes):
            findings.add(f"no layer makes its bottom {one!r}", message.line_of("bottom"), name)
        if not bottoms:
            findings.add("has no bottom", message.line, name)
        given = tuple(shape for one in bottoms if (shape := shapes.get(one)) is not None)
        if not bottoms or len(given) < len(bottoms):
            shapes.update(dict.fromkeys(message.all("top")))
            return False
        try:
            read = CaffeLayer(message, given, findings, phase, self._source.batch)
            translated = LAYERS[message.one("type")](read)
            made = translated.kind.shapes(given)
            if len(made) != len(message.all("top")):
                raise SettingError(f"has {len(message.all('top'))} tops; accepted: {len(made)}")
        except SettingError as error:
            findings.add(f"{error} (bottom {', '.join(map(str, given))})", message.line, name)
            shapes.update(dict.fromkeys(message.all("top")))
            return False
        shapes.update(zip(message.all("top"), made, strict=True))
        self._add(message, phase, translated, bottoms)
        return True

    def _add(self, message: CaffeMessage, phase: CaffePhase, translated: Translated, bottoms: list[str]) -> None:
        layer = NamedLayer(
            name=path_of(message),
            kind=translated.kind,
            inputs=tuple(bottoms),
            outputs=tuple(message.all("top")),
            phase=TORCH_PHASE[phase],
            shares=_shares(message),
            place=f"{self._source.file}:{message.line}",
        )
        for number, other in enumerate(self._found.layers):
            if phase == "TEST" and other.layer == replace(layer, phase="train"):
                self._found.layers[number] = replace(other, layer=replace(layer, phase=None))
                return
        self._found.layers.append(NamedTranslation(message, layer, translated))


def _edge(edges: Mapping[str, str], blob: str) -> str:
    return edges.get(blob, blob)


def _shares(message: CaffeMessage) -> dict[str, str]:
    """Parameters that have a name of their own, which other layers' may have, too."""
    specs = zip(parameters_of(message), message.all("param"), strict=False)
    return {own: spec.one("name") for own, spec in specs if spec.one("name")}


def _outputs(losses: list[CaffeMessage], unread: list[str]) -> tuple[str, ...]:
    """The edges that losses are computed of, the main one first; without losses those that nobody reads."""
    if losses:
        by_weight = sorted(losses, key=lambda loss: -(loss.all("loss_weight") or [1.0])[0])
        return tuple(dict.fromkeys(loss.all("bottom")[0] for loss in by_weight))
    return tuple(unread)
