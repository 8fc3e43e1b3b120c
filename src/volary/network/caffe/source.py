"""A network file of Caffe's, read: its layers in each phase, in today's form. Nothing is built yet."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from volary.network.caffe.findings import Findings
from volary.network.caffe.phases import NetState, layers_in
from volary.network.caffe.reading.text import read_text
from volary.network.caffe.types.parameters import parameters_of
from volary.network.caffe.types.registry import ALIASES, DATA, IGNORED, INPUT, LAYERS, LOSSES, MEASURES, REFUSED
from volary.network.caffe.upgrade.net import current
from volary.plugins import unknown

if TYPE_CHECKING:
    from volary.network.caffe.message import CaffeMessage

CaffePhase = Literal["TRAIN", "TEST"]
PHASES: tuple[CaffePhase, ...] = ("TRAIN", "TEST")
_KNOWN = (*LAYERS, INPUT, *DATA, *LOSSES, *MEASURES, *ALIASES, *IGNORED)
_IGNORED_IN_NETS = {
    "force_backward": "gradients are computed where they are needed",
    "debug_info": "the recorded histograms show values and gradients",
}


@dataclass(frozen=True)
class NetSource:
    """The layers of a network file, by phase.

    findings: what is wrong with it and what is ignored. name: of the network, as the file has it.
    """

    file: str
    name: str
    layers: Mapping[CaffePhase, list[CaffeMessage]]
    findings: Findings = field(compare=False)

    @property
    def batch(self) -> int | None:
        """The samples that an Input layer declares at a time; None if there is none."""
        for layer in self.layers["TEST"]:
            for shape in layer.part("input_param").all("shape") if layer.one("type") == INPUT else ():
                if dims := shape.all("dim"):
                    return int(dims[0])
        return None

    def factors(self) -> dict[str, tuple[float, float]]:
        """The factors of the learning rate and the decay of parameters, where these are not 1, by their names."""
        found: dict[str, tuple[float, float]] = {}
        for layer in self.layers["TRAIN"]:
            for name, spec in zip(parameters_of(layer), layer.all("param"), strict=False):
                given = (spec.one("lr_mult"), spec.one("decay_mult"))
                if given != (1.0, 1.0):
                    found[f"{path_of(layer)}.{name}"] = given
        return found

    def trained_outputs(self) -> tuple[str, ...]:
        """The blob in front of the softmax that a network without losses ends with; none: outputs are as they are."""
        layers = self.layers["TEST"]
        if any(layer.one("type") in LOSSES for layer in [*layers, *self.layers["TRAIN"]]):
            return ()
        read = {bottom for layer in layers for bottom in layer.all("bottom") if bottom not in layer.all("top")}
        ends = [layer for layer in layers if layer.all("top") and not read.intersection(layer.all("top"))]
        scores = [layer for layer in ends if layer.one("type") == "Softmax" and layer.all("bottom") != layer.all("top")]
        return (scores[0].all("bottom")[0],) if len(ends) == len(scores) == 1 else ()


def path_of(layer: CaffeMessage) -> str:
    """The name of a layer in its module, in whose names a dot has a meaning."""
    return str(layer.one("name")).replace(".", "_")


def read_net(file: Path, stages: Collection[str] = ()) -> NetSource:
    """The network in a prototxt file. stages: those that its layers' rules are compared with.

    Raises SettingError, with every problem that shows without shapes.
    """
    findings = Findings(str(file))
    return net_source(read_text(file, "Net", findings), findings, stages)


def net_source(net: CaffeMessage, findings: Findings, stages: Collection[str] = ()) -> NetSource:
    """The network in a message.

    Raises SettingError with every problem that shows without shapes.
    """
    for name, why in _IGNORED_IN_NETS.items():
        if name in net:
            findings.ignore(f"{name} is ignored: {why}", net.line_of(name))
    net = current(net, findings)
    layers = {phase: layers_in(net, NetState(phase, 0, frozenset(stages)), findings) for phase in PHASES}
    if not net.all("layer"):
        findings.add("has no layers; accepted: a network, whose file has `layer { ... }`")
    for layer in net.all("layer"):
        _check_type(layer, findings)
    for phase in PHASES:
        _refuse_names_given_twice(layers[phase], findings)
    findings.raise_if_any()
    return NetSource(findings.file, net.one("name"), layers, findings)


def _check_type(layer: CaffeMessage, findings: Findings) -> None:
    sort, name, line = layer.one("type"), layer.one("name"), layer.line_of("type")
    if sort in REFUSED:
        findings.add(f"type {sort!r} {REFUSED[sort]}", line, name)
    elif sort in IGNORED:
        findings.ignore(f"type {sort!r} is left out: {IGNORED[sort]}", line, name)
    elif sort not in _KNOWN:
        findings.add(f"type: {unknown(sort, sorted(_KNOWN))}", line, name)
    if not name and sort not in DATA:
        findings.add("a layer has no name", layer.line)


def _refuse_names_given_twice(layers: list[CaffeMessage], findings: Findings) -> None:
    lines: dict[str, int] = {}
    for layer in layers:
        name = layer.one("name")
        if name in lines and layer.one("type") in LAYERS:
            findings.add(f"the name is given twice (also in line {lines[name]})", layer.line, name)
        lines.setdefault(name, layer.line)
