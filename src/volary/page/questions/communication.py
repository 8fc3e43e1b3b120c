"""The codec chosen for each layer, choice by choice, and what would travel without any of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from volary.run.database.reader import Event

CHOICES = 8  # the newest; of a layer's way each is a column
VALUE_BYTES = 4


def choices(events: Iterable[Event]) -> list[dict[str, Any]]:
    """The tables of the run's choices, oldest first, with the step at which each was made."""
    return [{"step": event.step, **event.data} for event in events if event.kind == "ways"][-CHOICES:]


IN_MEMORY = "shared memory, since workers and servers are on one machine: only messages about it travel"


def in_memory(info: Mapping[str, str], settings: Mapping[str, str]) -> bool:
    """Whether workers lend to servers of their own machine what would travel otherwise."""
    try:
        hosts = set(json.loads(info.get("hosts", "{}")).values())
    except (ValueError, AttributeError, TypeError):
        return False
    local = settings.get("engine") == "local" and len(hosts) <= 1
    return (
        local and settings.get("strategy.exchange") == "server" and settings.get("strategy.exchange.transport") != "tcp"
    )


def exact_bytes(info: Mapping[str, str], settings: Mapping[str, str]) -> float | None:
    """Bytes that a worker would send in a step as 32-bit values: to servers, or by an all-reduce that wastes nothing.

    None if nobody knows, or nothing would travel.
    """
    try:
        parameters, workers = int(info["parameters"]), int(info["workers"])
    except (KeyError, ValueError):
        return None
    if settings.get("strategy.exchange") == "server":
        return None if in_memory(info, settings) else float(VALUE_BYTES * parameters)
    return 2 * VALUE_BYTES * parameters * (workers - 1) / workers if workers > 1 else None


def stragglers(events: Iterable[Event]) -> list[dict[str, Any]]:
    """List who was slow, from which step to which, in what, and how much of a step others waited; to: None: still."""
    found: list[dict[str, Any]] = []
    for event in events:
        if event.kind in ("slow", "not_slow") and found and found[-1]["to"] is None:
            found[-1]["to"] = event.step
        if event.kind == "slow":
            known = {key: event.data.get(key) for key in ("cause", "share", "reason")}
            found.append({"rank": event.rank, "from": event.step, "to": None, **known})
    return found
