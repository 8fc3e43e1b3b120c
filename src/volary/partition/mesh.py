"""Mesh: two axes at once. Replicas have samples of their own, and each is held by a group of workers, cut among them.

As Narayanan et al., "Efficient large-scale language model training on GPU clusters using Megatron-LM", SC 2021, lay
workers out. What is cut is exchanged within a group, whose workers should be near each other; gradients travel between
workers that hold the same part. With a model of local steps groups train on by themselves meanwhile, as in DiLoCo
(Douillard et al. 2023, arXiv:2311.08105).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from volary.errors import SettingError
from volary.partition._base import LayerUse, Part, Partition
from volary.sharding.groups import RankMesh

if TYPE_CHECKING:
    from torch import Tensor, nn

DATA, WORKERS = "data", "workers"
INSIDE = ("tensor", "pipeline", "hybrid", "branches", "sharded")
_ACCEPTED = f"data, and one of {', '.join(INSIDE)}, each with its number of workers: {{data: 2, pipeline: 2}}"


@dataclass(frozen=True, kw_only=True)
class TwoAxes(Partition):
    """Workers are replicas, each of which is a group of workers that hold the network together."""

    axes: Any  # data and another partition, each with its number of workers; {workers: 2, ...}: and with its settings

    def __post_init__(self) -> None:
        if not isinstance(self.axes, Mapping) or not self.axes:
            raise SettingError(f"axes is {self.axes!r}; accepted: {_ACCEPTED}")
        inside = [name for name in self.axes if name != DATA]
        for name in inside:
            if name not in INSIDE:
                raise SettingError(f"axes names {name!r}; accepted: {_ACCEPTED}")
        if len(inside) > 1:
            raise SettingError(f"axes names {' and '.join(inside)}; accepted: {_ACCEPTED}")
        for name in self.axes:
            count = self._workers(name)
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise SettingError(f"axes gives {name} {count!r} workers; accepted: a whole number from 1")
        self._inside.mesh(1)
        if self._replicas > 1 and "one update" in self._inside.lacks:
            raise SettingError(
                "axes gives hybrid updates=sub_batch, with which replicas would differ; accepted: updates=batch, or "
                "partition=hybrid"
            )

    @property
    def needs(self) -> Sequence[Any]:
        return self._inside.needs

    @property
    def lacks(self) -> Mapping[Any, str]:
        own = "with partition=mesh a worker may have a part of the network alone"
        return {**self._inside.lacks, "all sums": own}

    @property
    def local_steps(self) -> bool:
        return self._replicas > 1

    def mesh(self, ranks: int) -> RankMesh:
        """Raises SettingError unless there are as many ranks as the axes have."""
        if self._replicas * self._each != ranks:
            shown = ", ".join(f"{name}: {self._workers(name)}" for name in self.axes)
            raise SettingError(
                f"axes is {{{shown}}}, which is {self._replicas * self._each} workers, and workers is {ranks}; "
                "accepted: axes whose product is the workers"
            )
        return replace(self._inside.mesh(self._each), data=self._replicas)

    def parts(self, ranks: int) -> int:
        return self._replicas * self._inside.parts(self._each)

    def planned(self, module: nn.Module, ranks: int, inputs: Callable[[int], Tensor]) -> Mapping[str, Any]:
        found = self._inside.planned(module, self._each, lambda parts: inputs(parts * self._replicas))
        if not found:
            return {}
        settings = {**self._settings, WORKERS: self._each, **found}
        return {"axes": {name: settings if name != DATA else given for name, given in self.axes.items()}}

    def part(self, module: nn.Module, rank: int, ranks: int) -> Part:
        """The part that the rank's group makes of it, and the same for each replica. Raises SettingError as that
        partition.
        """
        self.mesh(ranks)
        replica, place = divmod(rank, self._each)
        own = self._inside.part(module, place, self._each)

        def passes_bytes(uses: Mapping[str, LayerUse], samples: float) -> float:
            return own.passes_bytes(uses, samples / self._replicas)

        held = own.holdings.repeated(self._replicas, replica)
        where = f"{own.place} of replica {replica + 1}" if own.place else ""
        return replace(own, holdings=held, passes_bytes=passes_bytes, place=where)

    @property
    def _replicas(self) -> int:
        return int(self._workers(DATA)) if DATA in self.axes else 1

    @property
    def _each(self) -> int:
        """Workers that hold a replica."""
        return prod(int(self._workers(name)) for name in self.axes if name != DATA)

    @property
    def _settings(self) -> Mapping[str, Any]:
        """The settings of the partition within a replica, as they were given."""
        given = next((given for name, given in self.axes.items() if name != DATA), None)
        return {key: value for key, value in given.items() if key != WORKERS} if isinstance(given, Mapping) else {}

    @cached_property
    def _inside(self) -> Partition:
        """The partition within a replica. Raises SettingError for settings that it does not have."""
        from volary.partition import ROOM

        name = next((name for name in self.axes if name != DATA), DATA)
        kind = ROOM.load(name)
        hints, known = get_type_hints(kind), [field.name for field in fields(kind)]
        for key, value in self._settings.items():
            if key not in known:
                raise SettingError(f"axes gives {name} the setting {key!r}; accepted: {', '.join([WORKERS, *known])}")
            values = get_args(hints[key]) if get_origin(hints[key]) is Literal else [value]
            if value not in values:
                raise SettingError(
                    f"axes gives {name} {key}: {value!r}; accepted: one of: {', '.join(map(str, values))}"
                )
        for field in fields(kind):
            if field.default is MISSING and field.name not in self._settings:
                raise SettingError(
                    f"axes gives {name} no {field.name}; accepted: {name}: {{workers: 2, {field.name}: ...}}"
                )
        try:
            found: Partition = kind(**self._settings)
        except SettingError as error:
            raise SettingError(f"axes gives {name}: {error}") from None
        return found

    def _workers(self, name: str) -> Any:
        """How many there are along an axis, as it was given."""
        given = self.axes[name]
        return given.get(WORKERS) if isinstance(given, Mapping) else given


PARTITION = TwoAxes
