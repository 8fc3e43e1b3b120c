"""The file of a network's first values, which are drawn without one: `network: {name: resnet18, weights: FILE}`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from volary.errors import SettingError
from volary.session.reading.node import Node
from volary.session.reading.settle import settle


@dataclass(frozen=True, kw_only=True)
class StartingWeights:
    """A file of weights, or a folder with one, and how its names are those of the network. Guide: docs/weights.md"""

    accepted: ClassVar[str] = "a path, or settings: path, key, rename, leave_out, fresh, replace_last"

    path: Path  # a file (safetensors, torch), a run, one of its checkpoints, or the folder of a model in a hub's cache
    key: str | None = None  # of a torch file with several sets of weights: the one to take
    rename: Any = field(default_factory=dict)  # names of the file to those of the network
    leave_out: tuple[str, ...] = ()  # patterns of the file's names that are not read
    fresh: tuple[str, ...] = ()  # patterns of the network's names whose values are drawn all the same
    replace_last: bool = False  # layers whose number of classes differs are drawn all the same

    def __post_init__(self) -> None:
        settle(self)
        rules = self.rename
        if not isinstance(rules, Mapping) or not all(isinstance(one, str) for pair in rules.items() for one in pair):
            raise SettingError('rename is no mapping of names; accepted: as {"backbone.*": "*"}')
        for name, other in rules.items():
            if name.count("*") > 1 or other.count("*") > name.count("*"):
                raise SettingError(
                    f"rename has {name!r}: {other!r}; accepted: names, each with at most one *, which stands for the "
                    "same in both"
                )
        for pattern in (*self.leave_out, *self.fresh):
            if not pattern:
                raise SettingError("leave_out and fresh have an empty pattern; accepted: as 'fc.*', or a layer's name")

    @classmethod
    def of(cls, value: Any) -> StartingWeights | None:
        """The setting, of what a program gives: a path, or the setting itself. Raises SettingError."""
        return cls(path=Path(value)) if isinstance(value, (str, Path)) else value

    @property
    def has_rules(self) -> bool:
        """Whether anything is said of names."""
        return bool(self.key or self.rename or self.leave_out or self.fresh or self.replace_last)

    def check(self) -> None:
        """Look whether the path is there, without torch. Raises SettingError if it is not."""
        if not self.path.exists():
            raise SettingError(
                f"network.weights: {self.path}: no such file or folder; accepted: a .safetensors file, a torch file "
                "(.pt, .pth, .bin), a run, one of its checkpoints, or a model's folder in a hub's cache"
            )


def long_form(node: Node) -> Node:
    """A bare path as the mapping that it stands for."""
    return node.with_value({"path": node}) if isinstance(node.value, (str, Path)) else node
