"""A process of a run below an actor, with which it ends, so that torch and signals are in it as everywhere else."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from volary.actors.cluster import ray_module
from volary.run.launch.child import Child

DRAIN_LOOK_S = 1.0


def place_of(rank: int, world_size: int, node: int = 0, local_rank: int = 0, beside: int = 0) -> dict[str, str]:
    """A process's place, as `volary.placement.ray` reads it. beside: 0 if it is not known."""
    numbers = {"RANK": rank, "WORLD_SIZE": world_size, "NODE": node, "LOCAL_RANK": local_rank, "LOCAL_SIZE": beside}
    return {f"VOLARY_RAY_{name}": str(number) for name, number in numbers.items()}


class ProcessActor:
    """One process, in an actor: it is started where Ray has a place for it, and ends with the actor."""

    def __init__(self) -> None:
        self._child: Child | None = None

    def run(self, command: Sequence[str], folder: str, variables: Mapping[str, str], log: str = "") -> int:
        """Run the command to its end, and no longer than this machine's raylet; return its status.

        folder: empty: that of the actor, with what was brought. log: where it prints; empty, or not seen here: into
        Ray's log of this actor.
        """
        self._child = child = Child(command, folder, variables, log)
        drain = _DrainWatch(ray_module())
        return child.wait(lambda: child.ask_to_end() if drain.has_begun() else None)

    def ask_to_end(self) -> None:
        if self._child is not None:
            self._child.ask_to_end()


class _DrainWatch:
    """Whether Ray drains the node of this process: it starts nothing more there, as the node is taken away soon."""

    def __init__(self, ray: Any) -> None:
        self._state, self._node = ray._private.state.state, ray.get_runtime_context().get_node_id()
        self._drains, self._next_s = False, time.monotonic() + DRAIN_LOOK_S

    def has_begun(self) -> bool:
        """Whether that is news; Ray is asked once in a while."""
        if self._drains or time.monotonic() < self._next_s:
            return False
        self._next_s = time.monotonic() + DRAIN_LOOK_S
        with suppress(Exception):  # whatever Ray raises where its head is away: it is asked again
            self._drains = self._node in self._state.get_draining_nodes()
        return self._drains
