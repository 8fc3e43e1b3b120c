"""The layers of the network that a run trains, in its database."""

from __future__ import annotations

import msgspec


class GraphLayer(msgspec.Struct, frozen=True):
    """A layer, as `volary.network.layer_graph` describes it."""

    name: str
    kind: str
    inputs: list[str]
    shape: list[int]
    operations: int
    forward_s: float


class LayerGraph(msgspec.Struct, frozen=True):
    """Layers in the order in which they run. parameters: how many values each has, by name, in the network's order.

    samples: with how many of them `forward_s` was measured. product_per_s: operations a second of a matrix product, on
    one worker; 0 if that was not measured.
    """

    layers: list[GraphLayer]
    parameters: dict[str, int]
    samples: int
    product_per_s: float = 0.0


SCHEMA = """
CREATE TABLE IF NOT EXISTS network (id INTEGER PRIMARY KEY CHECK (id = 0), graph TEXT NOT NULL);
"""
REPLACE = "INSERT OR REPLACE INTO network VALUES (0, ?)"
IS_THERE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'network'"  # not in a run of an older version
ALL = "SELECT graph FROM network"


def rows(graph: LayerGraph) -> list[tuple[str]]:
    """The rows of the table `network` that hold the graph."""
    return [(msgspec.json.encode(graph).decode(),)]


def read(graph: str) -> LayerGraph:
    """Back again. Raises msgspec.ValidationError for what is none."""
    return msgspec.json.decode(graph, type=LayerGraph)
