"""A run's session in a few words, from its resolved file, without loading what the session names.

The session itself is read strictly by `volary.session`. This reader is for looking at runs of any age, and takes what
it understands: a resolved file has one setting a line, so it needs no YAML library, which was a sixth of the time of
`volary show`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

AXES = ("consistency", "exchange", "codec", "partition")


@dataclass(frozen=True)
class Outline:
    """The outline of a session; a part that the file does not have is an empty string.

    own_loop: the function or program of a run of somebody's own training loop, which has no network, data or loss that
    Volary knows.
    """

    own_loop: str = ""
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
        subject = self.own_loop or self.network + source
        batch = f"batch {self.batch_size}" if self.batch_size else ""
        parts = (subject, batch, self.optimizer, workers, self.strategy, self.engine)
        return ", ".join(part for part in parts if part)


def outline(path: Path) -> Outline:
    """The outline of the resolved session at `path`; an empty one if it cannot be read."""
    try:
        return _outline(settings_in(path))
    except (OSError, ValueError):
        return Outline()


def settings_in(path: Path) -> dict[str, str]:
    """Value by dotted name in the resolved session at `path`, as written; a plug-in's name stands for it whole.

    Raises OSError and ValueError.
    """
    return settings_in_text(path.read_text(encoding="utf-8"))


def settings_in_text(text: str) -> dict[str, str]:
    """As `settings_in`, of the text of such a file."""
    found: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        name, colon, value = line.strip().partition(":")
        depth = len(line) - len(line.lstrip())
        if not colon or name.startswith("#"):
            continue
        while above and above[-1][0] >= depth:
            above.pop()
        above.append((depth, name))
        found[".".join(part for _, part in above)] = value.strip().strip("\"'")
    plugins = {name.removesuffix(".name"): value for name, value in found.items() if name.endswith(".name")}
    plugins.pop("run", None)
    values = {name: value for name, value in found.items() if value and name.removesuffix(".name") not in plugins}
    return plugins | values


def own_loop(settings: Mapping[str, str]) -> str:
    """The function or program, if the settings are of a training loop of the user's own."""
    return settings.get("function") or settings.get("program") or ""


def _called(reference: str) -> str:
    """Code of the user's own without its folder: `my_net.py:Net`; anything else as it is."""
    return reference.partition(" in /")[0].rpartition("/")[2]


def _outline(settings: Mapping[str, str]) -> Outline:
    def name(setting: str) -> str:
        return settings.get(setting, "")

    network = _called(name("network"))
    axes = [name(f"strategy.{axis}") for axis in AXES]
    rate = settings.get("optimizer.lr")
    return Outline(
        own_loop=_called(own_loop(settings)),
        network=network if ":" in network else network + name("network.depth"),
        source=_called(name("data.source")),
        batch_size=settings.get("data.batch_size", ""),
        optimizer=name("optimizer") + (f" lr {rate}" if rate else ""),
        workers=settings.get("strategy.workers", ""),
        strategy=" x ".join(axis for axis in axes if axis),
        engine=name("engine"),
    )
