"""The memory that runs of a session take: measured of earlier ones in the queue, or the dry run's estimate; kept."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from volary.jobs.entry import MemoryFrom
from volary.monitor.outline import settings_in_text
from volary.run.machine.kept_figures import keep, path_of

FILE = "memory-of-sessions.json"
ESTIMATES = "memory-estimates.json"
MOST = 1000  # sessions that are kept, the newest
_ALIKE = (
    "train.seed",
    "seed",
    "data.fold",
    "optimizer.lr",
    "train.steps",
    "train.epochs",
    "train.stop_at",
)  # no matter what they are


def known_bytes(session_yaml: str) -> int | None:
    """The bytes that a run of this session took here; None if there was none."""
    return _kept(FILE).get(session_key(session_yaml))


def keep_bytes(session_yaml: str, taken: int) -> None:
    """Keep what a run of this session took. Raises OSError."""
    _keep(FILE, session_yaml, taken)


def keep_estimate(session_yaml: str, estimated: int) -> None:
    """Keep what all processes of a run take on this machine by its dry run (`volary check`). Raises OSError."""
    _keep(ESTIMATES, session_yaml, estimated)


def session_key(session_yaml: str) -> str:
    """A name of the session: the same of runs that differ in their names, and in what takes no memory."""
    settings: Mapping[str, str] = settings_in_text(session_yaml)
    counted = [f"{name}={value}" for name, value in settings.items() if not name.startswith("run.")]
    counted = [one for one in counted if one.partition("=")[0] not in _ALIKE]
    return hashlib.blake2b("\n".join(sorted(counted)).encode(), digest_size=12).hexdigest()


@dataclass(frozen=True)
class KnownMemory:
    """Memory of all sessions as known now, in bytes by their names: that runs took, and that dry runs expect."""

    taken: Mapping[str, int]
    estimated: Mapping[str, int]

    @classmethod
    def now(cls) -> KnownMemory:
        return cls(_kept(FILE), _kept(ESTIMATES))

    def of(self, key: str, most: int) -> tuple[int, MemoryFrom] | None:
        """The bytes that a run of this session takes here, and how that is known; None if it is not.

        most: what the machine has: an estimate is no more, as it may be wrong, and lets the run have all of it.
        """
        if key in self.taken:
            return self.taken[key], "measured"
        return (min(self.estimated[key], most), "estimate") if key in self.estimated else None


def _keep(file: str, session_yaml: str, size: int) -> None:
    key, kept = session_key(session_yaml), _kept(file)
    kept.pop(key, None)
    newest = [*kept.items(), (key, size)][-MOST:]
    keep(file, msgspec.json.encode(dict(newest)))


def _kept(file: str) -> dict[str, int]:
    try:
        return msgspec.json.decode(path_of(file).read_bytes(), type=dict[str, int])
    except (OSError, ValueError, msgspec.MsgspecError):  # none yet, or no file of ours
        return {}
