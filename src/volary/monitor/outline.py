"""A run's session in a few words, from its resolved file, without loading what the session names.

The session itself is read strictly by `volary.session`; this reader is for looking at runs of any age, and takes
what it understands.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Outline:
    """What a session is about; a part that the file does not tell is an empty string."""

    network: str = ""
    source: str = ""
    batch_size: str = ""
    optimizer: str = ""
    workers: str = ""
    strategy: str = ""
    engine: str = ""

    def sentence(self) -> str:
        """One line: `lenet on digits, batch 64, sgd lr 0.05, 2 workers, bsp x allreduce x none x data, local`."""
        workers = f"{self.workers} worker{'s' * (self.workers != '1')}" if self.workers else ""
        source = f" on {self.source}" if self.source else ""
        batch = f"batch {self.batch_size}" if self.batch_size else ""
        parts = (self.network + source, batch, self.optimizer, workers, self.strategy, self.engine)
        return ", ".join(part for part in parts if part)


def outline(path: Path) -> Outline:
    """The outline of the session file at `path`; an empty one if it cannot be read."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        found = YAML(typ="safe", pure=True).load(path.read_text())
    except (OSError, ValueError, YAMLError):
        return Outline()
    return _outline(found) if isinstance(found, dict) else Outline()


def _outline(session: dict[str, Any]) -> Outline:
    data, strategy = _mapping(session.get("data")), _mapping(session.get("strategy"))
    axes = [_name(strategy.get(axis)) for axis in ("consistency", "exchange", "codec", "partition")]
    optimizer = session.get("optimizer")
    rate = _mapping(optimizer).get("lr")
    return Outline(
        network=_name(session.get("network")),
        source=_name(data.get("source")),
        batch_size=str(data.get("batch_size", "")),
        optimizer=_name(optimizer) + (f" lr {rate}" if rate is not None else ""),
        workers=str(strategy.get("workers", "")),
        strategy=" x ".join(axis for axis in axes if axis),
        engine=_name(session.get("engine")),
    )


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _name(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("name", "")
    return str(value) if value is not None else ""
