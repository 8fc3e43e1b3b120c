"""The sizes from which on one way of a collective is the fastest here: measured, and kept for later runs.

They are in the user's cache directory, for each set of machines by itself. `volary bench collectives` writes them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

import volary
from volary.run.machine.kept_figures import keep as keep_file
from volary.run.machine.kept_figures import path_of

if TYPE_CHECKING:
    from pathlib import Path

    from volary.comm.topology.topology import Topology

COLLECTIVES = ("all_reduce", "broadcast", "reduce", "reduce_scatter", "all_gather")
FASTER = 0.9  # a way must need less than this share of the other's time to be changed to: less is noise
LIKE = 2.0  # links whose speeds differ by less than this factor are the same ones

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SwitchPoints:
    """ways: for each of COLLECTIVES the sizes in bytes, ascending, from which another way is the fastest, and which.

    The ways of all_reduce are routes (volary.comm.routes), those of the others stand in volary.comm.collectives.
    largest: the largest size that was measured, in bytes, of each.
    """

    ways: Mapping[str, Sequence[tuple[int, str]]]
    largest: Mapping[str, int]

    @classmethod
    def of(cls, times: Mapping[str, Mapping[int, Mapping[str, float]]]) -> SwitchPoints:
        """Make switch points of seconds, by collective, size in bytes and way."""
        ways = {collective: _points(sizes) for collective, sizes in times.items()}
        return cls(ways, {collective: max(sizes) for collective, sizes in times.items()})

    def best(self, collective: str, size_bytes: int) -> str | None:
        """The fastest way of one of COLLECTIVES for so many bytes; None above what was measured."""
        if size_bytes > self.largest[collective]:
            return None
        points = self.ways[collective]
        return next((way for start, way in reversed(points) if start <= size_bytes), points[0][1])


class _Kept(msgspec.Struct, forbid_unknown_fields=True):
    """The file's entry of one set of machines. volary: the version that measured; bytes_per_s: what links carry."""

    volary: str
    ways: dict[str, list[tuple[int, str]]]
    largest: dict[str, int]
    bytes_per_s: float | None = None


def file() -> Path:
    """The file that `volary bench` writes and collectives read, in the user's cache."""
    return path_of("collectives.json")


def key(topology: Topology, backend: str) -> str:
    """The key that the figures are kept under: the hosts, how many ranks each has, and what connects them."""
    hosts = [f"{host}*{len(ranks)}" for host, ranks in zip(topology.hosts, topology.nodes, strict=True)]
    return f"{backend}: {' '.join(hosts)}"


def load(topology: Topology, backend: str) -> SwitchPoints | None:
    """Load what was kept for such ranks; None if nothing was measured, or by another version, or at another link speed.

    A damaged file is ignored.
    """
    kept = _read().get(key(topology, backend))
    if kept is None or kept.volary != volary.__version__ or not _alike(kept.bytes_per_s, topology.within_bytes_per_s):
        return None
    return SwitchPoints(kept.ways, kept.largest)


def keep(topology: Topology, backend: str, points: SwitchPoints) -> Path:
    """Keep them for such ranks, and return the file. Raises OSError if it cannot be written."""
    ways = {collective: list(switches) for collective, switches in points.ways.items()}
    kept = _Kept(volary.__version__, ways, dict(points.largest), topology.within_bytes_per_s)
    known = _read() | {key(topology, backend): kept}
    return keep_file("collectives.json", msgspec.json.format(msgspec.json.encode(known)) + b"\n")


def _read() -> dict[str, _Kept]:
    path = file()
    try:
        found = msgspec.json.decode(path.read_bytes(), type=dict[str, _Kept])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        _log.warning("%s is ignored, as it cannot be read (%s); `volary bench collectives` measures anew", path, error)
        return {}
    # whole or not at all: who asks for the best way gets an answer
    return {
        name: kept
        for name, kept in found.items()
        if all(kept.ways.get(one) and one in kept.largest for one in COLLECTIVES)
    }


def _alike(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return max(one, other) < LIKE * min(one, other)


def _points(sizes: Mapping[int, Mapping[str, float]]) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for size_bytes, times in sorted(sizes.items()):
        fastest = min(times, key=times.__getitem__)
        if not found or times[fastest] < FASTER * times.get(found[-1][1], float("inf")):
            found.append((size_bytes, fastest))
    return found
