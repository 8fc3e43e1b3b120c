"""A graph as a PyTorch module that somebody can read and change: a line a layer, no import but torch's."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.network.graph.wiring import Edge, WiredLayer, wire
from volary.network.layers.concat import ConcatLayer
from volary.network.layers.crop import CropLayer
from volary.network.layers.elementwise import ElementwiseLayer
from volary.network.layers.linear import LinearLayer
from volary.network.layers.lrn import LrnLayer
from volary.network.layers.permute import PermuteLayer
from volary.network.layers.pool import PoolLayer
from volary.network.layers.power import PowerLayer
from volary.network.layers.reshape import ReshapeLayer
from volary.network.layers.scale import ScaleLayer
from volary.network.layers.slice import SliceLayer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from volary.network.graph.form import Graph
    from volary.network.graph.module import GraphModule
    from volary.network.layers._base import LayerKind, Shape
    from volary.network.layers.exp import ExpLayer
    from volary.network.layers.log import LogLayer

_WORDS = frozenset({"self", "torch", "nn", "Tensor", "Net", "Scale", "forward", "input", "training"})
_SCALE = '''
class Scale(nn.Module):
    """x * weight + bias; after: axes of x behind those of the parameters."""

    def __init__(self, shape: tuple[int, ...], after: int, bias: bool) -> None:
        super().__init__()
        self.after = after
        self.weight = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        sizes = (*self.weight.shape, *(1,) * self.after)
        x = x * self.weight.reshape(sizes)
        return x if self.bias is None else x + self.bias.reshape(sizes)

'''


@dataclass(frozen=True)
class PythonNetwork:
    """The code of a module, and the name of each of the graph's layers in it."""

    code: str
    names: Mapping[str, str]

    def state(self, module: nn.Module) -> dict[str, Tensor]:
        """The module's parameters and statistics, of any shapes, under the names that they have in the code."""
        found = {}
        for name, values in module.state_dict().items():
            layer, _, own = name.rpartition(".")
            if layer in self.names:
                found[f"{self.names[layer]}.{own}"] = values.detach().clone().contiguous()
        return found


def python_source(module: GraphModule, graph: Graph, about: str) -> PythonNetwork:
    """The class `Net` that computes what the graph does in evaluation, with the module's parameters.

    about: the file's first sentence. Raises SettingError for a layer that is no line of torch's.
    """
    from torch import nn

    wiring = wire(graph, "evaluate")
    shapes = module.shapes["evaluate"]
    needed = wiring.needed(wiring.outputs, wiring.inputs)
    attributes = _identifiers([wired.layer.name for wired in needed], _WORDS | set(dir(nn.Module())))
    variables = _variables(wiring.inputs, needed)
    paths = {wired.layer.name: path for wired, path in module.layers("evaluate")}
    made, lines = [], []
    for wired in needed:
        written = _Line(wired, attributes[wired.layer.name], [variables[edge] for edge in wired.reads], shapes)
        if init := written.init(module.get_submodule(paths[wired.layer.name])):
            made.append(f"        self.{attributes[wired.layer.name]} = {init}")
        targets = ", ".join(variables[edge] for edge in wired.makes)
        lines.append(f"        {targets} = {written.expression()}")
    given = ", ".join(f"{variables[edge]}: Tensor" for edge in wiring.inputs)
    outputs = ", ".join(variables[edge] for edge in wiring.outputs)
    kind = "Tensor" if len(wiring.outputs) == 1 else f"tuple[{', '.join(['Tensor'] * len(wiring.outputs))}]"
    sizes = "; ".join(f"{variables[edge]}: {('batch', *shapes[edge])}".replace("'", "") for edge in wiring.inputs)
    helpers = _SCALE if any(" = Scale(" in line for line in made) else ""
    code = "\n".join(
        [
            f'"""{about}"""\n\nimport torch\nfrom torch import Tensor, nn\n\n{helpers}',
            f'class Net(nn.Module):\n    """Takes {sizes}."""\n',
            "    def __init__(self) -> None:\n        super().__init__()",
            *made,
            f"\n    def forward(self, {given}) -> {kind}:",
            *lines,
            f"        return {outputs}\n",
        ]
    )
    return PythonNetwork(code, {name: attributes[name] for name in attributes})


def _identifiers(names: Sequence[str], taken: frozenset[str] | set[str]) -> dict[str, str]:
    """A name that Python takes for each name, each its own."""
    found: dict[str, str] = {}
    used = set(taken)
    for name in names:
        plain = re.sub(r"\W", "_", name, flags=re.ASCII)
        plain = plain if plain[:1].isalpha() or plain[:1] == "_" else f"layer_{plain}"
        while plain in used or keyword.iskeyword(plain):
            plain += "_"
        used.add(plain)
        found[name] = plain
    return found


def _variables(inputs: Sequence[Edge], layers: Sequence[WiredLayer]) -> dict[Edge, str]:
    """A variable for each edge; its versions have one, since each is the last reader's of the one before."""
    edges = [*inputs, *(edge for wired in layers for edge in wired.makes)]
    plain = _identifiers([*dict.fromkeys(name for name, _ in edges)], _WORDS - {"input"})
    read_later = {edge for wired in layers for edge in wired.reads}
    found = {}
    for name, version in edges:
        newest = max(one for other, one in edges if other == name)
        kept = version < newest and _read_after_overwritten((name, version), layers) and (name, version) in read_later
        found[name, version] = f"{plain[name]}_{version}" if kept else plain[name]
    return found


def _read_after_overwritten(edge: Edge, layers: Sequence[WiredLayer]) -> bool:
    name, version = edge
    writes = [number for number, wired in enumerate(layers) if (name, version + 1) in wired.makes]
    reads = [number for number, wired in enumerate(layers) if edge in wired.reads]
    return bool(writes and reads and max(reads) > min(writes))


class _Line:
    """One layer: what makes its module, and what its line in `forward` computes."""

    def __init__(self, wired: WiredLayer, name: str, given: list[str], shapes: Mapping[Edge, Shape]) -> None:
        self._kind, self._layer, self._self, self._given = wired.layer.kind, wired.layer, f"self.{name}", given
        self._shapes = [shapes[edge] for edge in wired.reads]
        self._made = [shapes[edge] for edge in wired.makes]

    def init(self, module: nn.Module) -> str:
        """The expression that makes the layer's module; empty if it needs none. Raises SettingError, see above."""
        kind = self._kind
        if isinstance(kind, ScaleLayer) and len(self._given) == 1:
            shape = tuple(module.get_parameter("weight").shape)
            return f"Scale({shape}, {len(self._shapes[0]) - _first(kind, self._shapes[0]) - len(shape)}, {kind.bias})"
        if isinstance(kind, PoolLayer) and kind.size != "global":
            name = type(module).__name__
            ceil = kind.round == "ceil"
            return f"nn.{name}({kind.size}, stride={kind.stride}, padding={kind.padding}, ceil_mode={ceil})"
        if isinstance(kind, LinearLayer):
            features = f"{_features(kind, self._shapes[0])}, {kind.outputs}"
            return f"nn.Linear({features}{'' if kind.bias else ', bias=False'})"
        if type(module).__module__.startswith("torch.nn."):
            return f"nn.{module!r}"
        if self._plain() is None:
            raise SettingError(f"layer {self._layer.name!r}: its kind has no line of torch's; accepted: other layers")
        return ""

    def expression(self) -> str:
        """The expression by which the layer computes its outputs."""
        if (plain := self._plain()) is not None:
            return plain
        if isinstance(self._kind, LinearLayer):
            first = _axis(self._kind.axis, self._shapes[0])
            flat = "" if first == len(self._shapes[0]) else f".flatten({first})"
            return f"{self._self}({self._given[0]}{flat})"
        return f"{self._self}({', '.join(self._given)})"

    def _plain(self) -> str | None:
        """The expression of a layer without a module of its own; None for the others."""
        kind, x = self._kind, self._given[0]
        if isinstance(kind, ConcatLayer):
            return f"torch.cat([{', '.join(self._given)}], dim={_axis(kind.axis, self._shapes[0])})"
        if isinstance(kind, SliceLayer):
            axis = _axis(kind.axis, self._shapes[0])
            return f"torch.split({x}, {[made[axis - 1] for made in self._made]}, dim={axis})"
        if isinstance(kind, PermuteLayer):
            return f"{x}.permute({', '.join(map(str, (0, *kind.order)))})"
        if isinstance(kind, ReshapeLayer):
            return f"{x}.reshape({', '.join(map(str, ('len(' + x + ')', *self._made[0])))})"
        if isinstance(kind, CropLayer):
            return self._cropped(kind, x)
        if isinstance(kind, PowerLayer):
            line = f"{kind.shift!r} + {kind.scale!r} * {x}"
            return line if kind.power == 1 else f"({line}) ** {kind.power!r}"
        if isinstance(kind, ElementwiseLayer):
            return self._joined(kind)
        return self._computed(kind, x)

    def _computed(self, kind: LayerKind, x: str) -> str | None:
        from volary.network.layers.activation import ActivationLayer
        from volary.network.layers.clip import ClipLayer
        from volary.network.layers.exp import ExpLayer
        from volary.network.layers.log import LogLayer
        from volary.network.layers.threshold import ThresholdLayer
        from volary.network.layers.tile import TileLayer

        if isinstance(kind, ActivationLayer) and kind.function == "abs":
            return f"{x}.abs()"
        if isinstance(kind, ExpLayer | LogLayer):
            return _of_line(kind, f"{kind.shift!r} + {kind.scale!r} * {x}")
        if isinstance(kind, ClipLayer):
            return f"{x}.clamp({kind.low!r}, {kind.high!r})"
        if isinstance(kind, ThresholdLayer):
            return f"({x} > {kind.above!r}).to({x}.dtype)"
        if isinstance(kind, TileLayer):
            return f"torch.cat([{', '.join([x] * kind.copies)}], dim={_axis(kind.axis, self._shapes[0])})"
        if isinstance(kind, ScaleLayer) and len(self._given) == 2 and not kind.bias:
            before, shape = _first(kind, self._shapes[0]), self._shapes[1]
            after = len(self._shapes[0]) - before - len(shape)
            sizes = ", ".join(map(str, (f"len({self._given[1]})", *(1,) * before, *shape, *(1,) * after)))
            return f"{x} * {self._given[1]}.reshape({sizes})"
        if isinstance(kind, LrnLayer) and kind.region == "within":
            near = f"nn.functional.avg_pool2d({x}.square(), {kind.size}, stride=1, padding={kind.size // 2})"
            return f"{x} / ({kind.k!r} + {kind.alpha!r} * {near}) ** {kind.beta!r}"
        return None

    def _joined(self, kind: ElementwiseLayer) -> str:
        if kind.operation == "maximum":
            found = self._given[0]
            for other in self._given[1:]:
                found = f"torch.maximum({found}, {other})"
            return found
        sign = " + " if kind.operation == "sum" else " * "
        if kind.coefficients is None:
            return sign.join(self._given)
        return sign.join(f"{factor!r} * {one}" for factor, one in zip(kind.coefficients, self._given, strict=True))

    def _cropped(self, kind: CropLayer, x: str) -> str:
        from volary.network.operations.windows import each

        first = _axis(kind.axis, self._shapes[0])
        offsets = each("offset", kind.offset, len(self._shapes[0]) - first + 1)
        sizes = self._made[0][first - 1 :]
        cuts = ", ".join(f"{offset}:{offset + size}" for offset, size in zip(offsets, sizes, strict=True))
        return f"{x}[{':, ' * first}{cuts}]"


def _of_line(kind: ExpLayer | LogLayer, line: str) -> str:
    """An exponential or a logarithm of a line."""
    from volary.network.layers.exp import ExpLayer

    factor = "" if kind.base is None else repr(log(kind.base))
    if isinstance(kind, ExpLayer):
        return f"(({line}) * {factor}).exp()" if factor else f"({line}).exp()"
    return f"({line}).log()" + (f" / {factor}" if factor else "")


def _axis(axis: int, shape: Shape) -> int:
    """An axis, counted with the batch as 0."""
    return axis if axis >= 0 else len(shape) + 1 + axis


def _first(kind: ScaleLayer, shape: Shape) -> int:
    return max(0, _axis(kind.axis, shape) - 1)


def _features(kind: LinearLayer, shape: Shape) -> int:
    from math import prod

    return prod(shape[_axis(kind.axis, shape) - 1 :])
