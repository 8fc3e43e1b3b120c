"""The shape of every edge of a graph, without running it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.session.reading.problems import Problem, SessionError

if TYPE_CHECKING:
    from volary.network.graph.wiring import Edge, WiredLayer, Wiring
    from volary.network.layers._base import Shape


def infer(wiring: Wiring, inputs: Mapping[str, Shape]) -> dict[Edge, Shape]:
    """The shapes of all edges, without the batch; inputs: those of the edges that are fed.

    Raises SessionError, which names the first layer that does not take the shapes that it is given.
    """
    shapes: dict[Edge, Shape] = {edge: tuple(inputs[edge[0]]) for edge in wiring.inputs}
    for wired in wiring.layers:
        made = layer_shapes(wired, tuple(shapes[edge] for edge in wired.reads))
        shapes.update(zip(wired.makes, made, strict=True))
    return shapes


def layer_shapes(wired: WiredLayer, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """The shapes that a layer makes of those that it is given. Raises SessionError if it does not take them."""
    try:
        return wired.layer.kind.shapes(given)
    except SettingError as error:
        named = ", ".join(f"{name} {shape}" for (name, _), shape in zip(wired.reads, given, strict=True))
        sentence = f"{error} (given {named})"
        raise SessionError([Problem(wired.layer.place, f"layer {wired.layer.name!r}", sentence)]) from None
