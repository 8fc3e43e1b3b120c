"""The network as a graph: what each layer computes, and what of it travels, how, and for how long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from volary.monitor.trace import journeys
from volary.run.database.network import LayerGraph
from volary.run.database.reader import RunReader

STEPS = 4  # newest recorded ones, of which travelling times are the medians
_TO = " .. "  # between the first and the last parameter of a bucket


def network(reader: RunReader) -> dict[str, Any]:
    """The layers in the order in which they run; none where they were not recorded. samples: that a forward had.

    Of each, besides what `LayerGraph` says: its parameters, and of their gradients bytes, communication_s and blocked_s
    (None where nothing was seen to travel), the buckets they travel in, and way and why, where that was chosen.
    """
    graph = reader.network()
    if graph is None:
        return {"layers": [], "samples": 0}
    owners = _owners(graph)
    found = {one.name: msgspec.to_builtins(one) | _nothing() for one in graph.layers}
    for name, values in graph.parameters.items():
        if name in owners:
            found[owners[name]]["parameters"] += values
    _add_journeys(reader, graph, owners, found)
    _add_ways(reader, owners, found)
    return {"layers": list(found.values()), "samples": graph.samples}


def _nothing() -> dict[str, Any]:
    return {
        "parameters": 0,
        "bytes": None,
        "communication_s": None,
        "blocked_s": None,
        "buckets": [],
        "way": "",
        "why": "",
    }


def _owners(graph: LayerGraph) -> dict[str, str]:
    """The layer that has a parameter, by parameter."""
    layers = {one.name for one in graph.layers}
    found = {}
    for name in graph.parameters:
        above = name
        while above and above not in layers:
            above = above.rpartition(".")[0]
        if above in layers:
            found[name] = above
    return found


def _add_journeys(
    reader: RunReader, graph: LayerGraph, owners: Mapping[str, str], found: Mapping[str, dict[str, Any]]
) -> None:
    """A bucket's bytes are shared by the sizes of its parameters; each layer in it waits for the whole bucket."""
    recorded = reader.recorded_steps()[-STEPS:]
    spans = list(reader.spans(recorded[0], recorded[-1])) if recorded else []
    for one in journeys(spans):
        if one.sent_to_received_s is None:
            continue
        inside = [name for name in _of_bucket(one.name, list(graph.parameters)) if name in owners]
        values = sum(graph.parameters[name] for name in inside) or 1
        for name in inside:
            layer = found[owners[name]]
            layer["bytes"] = (layer["bytes"] or 0.0) + one.size_bytes * graph.parameters[name] / values
            if one.name not in layer["buckets"]:
                layer["buckets"].append(one.name)
                layer["communication_s"] = (layer["communication_s"] or 0.0) + one.sent_to_received_s
                layer["blocked_s"] = (layer["blocked_s"] or 0.0) + (one.waited_s or 0.0)


def _of_bucket(bucket: str, parameters: list[str]) -> Iterator[str]:
    """The parameters whose gradients travel in a bucket, by its name: one of them, or the first and the last."""
    ends = [parameters.index(name) for name in bucket.split(_TO) if name in parameters]
    return iter(parameters[min(ends) : max(ends) + 1] if ends else [])


def _add_ways(reader: RunReader, owners: Mapping[str, str], found: Mapping[str, dict[str, Any]]) -> None:
    """Add the representations of the newest choice."""
    *_, newest = [None, *reader.events(kind="ways")]
    for name, way, _, _, why in newest.data["table"] if newest else []:
        if name in owners and not found[owners[name]]["way"]:
            found[owners[name]] |= {"way": way, "why": why}
