"""The memory that earlier runs of a session took: measured while they ran in the queue, kept for the next ones."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from volary.monitor.outline import settings_in_text
from volary.run.machine.kept_figures import keep, path_of

FILE = "memory-of-sessions.json"
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
    return _kept().get(_key(session_yaml))


def keep_bytes(session_yaml: str, taken: int) -> None:
    """Keep what a run of this session took. Raises OSError."""
    key, kept = _key(session_yaml), _kept()
    kept.pop(key, None)
    newest = [*kept.items(), (key, taken)][-MOST:]
    keep(FILE, msgspec.json.encode(dict(newest)))


def _key(session_yaml: str) -> str:
    """The same of runs that differ in their names, and in what takes no memory."""
    settings: Mapping[str, str] = settings_in_text(session_yaml)
    counted = [f"{name}={value}" for name, value in settings.items() if not name.startswith("run.")]
    counted = [one for one in counted if one.partition("=")[0] not in _ALIKE]
    return hashlib.blake2b("\n".join(sorted(counted)).encode(), digest_size=12).hexdigest()


def _kept() -> dict[str, int]:
    try:
        return msgspec.json.decode(path_of(FILE).read_bytes(), type=dict[str, int])
    except (OSError, ValueError, msgspec.MsgspecError):  # none yet, or no file of ours
        return {}
