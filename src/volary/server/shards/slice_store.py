"""Tensors of the slices that one process keeps: values, contributions to be applied, and what snapshots need.

Values are copied before they change where somebody still reads them: what is being sent, and what is in a snapshot.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from volary.server.protocol.vectors import Asked
from volary.server.shards.actions import FindNorm
from volary.server.shards.buffer_pool import BufferPool, Offer, PooledBuffer, Take
from volary.server.update_rule import SliceUpdate

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from volary.comm.channels.channel import Payload
    from volary.server.protocol.header import Form
    from volary.server.protocol.updates import Contribution
    from volary.server.protocol.vectors import FoundProducts
    from volary.server.shards.actions import Apply, Measurement
    from volary.server.shards.forms import Forms
    from volary.server.update_rule import UpdateRule


Norm = Callable[[int, SliceUpdate, float], float]  # of a slice's gradient, of a kind
Find = Callable[[int, SliceUpdate, Asked], "FoundProducts"]  # products of a slice's vectors


class _Values:
    """A slice's values in a room. users: the slice itself, while they are its newest, and whoever reads them."""

    __slots__ = ("room", "tensor", "users")

    def __init__(self, room: PooledBuffer, dtype: torch.dtype) -> None:
        self.room, self.tensor, self.users = room, room.tensor.view(dtype), 1


@dataclass
class PendingContribution:
    """A contribution that waits for its update. used: bit i: part i has a gradient."""

    form: Form
    used: int
    offer: Offer


@dataclass
class _Kept:
    """A slice as it was at a snapshot. state: of its rule; None: that of now, as it has not changed yet."""

    reading: Reading
    state: Any = None


@dataclass
class _Summed:
    """Contributions to a slice, and their sum by parts, in `scratch` unless one of them is the sum."""

    held: Sequence[PendingContribution]
    scratch: PooledBuffer
    sums: Sequence[Tensor | None] = ()

    @property
    def carrying(self) -> list[PendingContribution]:
        """The contributions in which some part has a gradient."""
        return [one for one in self.held if one.used]

    def drop(self, pool: BufferPool) -> None:
        """Drop what nobody needs any more."""
        pool.give(self.scratch)
        for one in self.held:
            one.offer.drop()


class Reading:
    """A slice's values as of `version`, which do not change before `close`."""

    __slots__ = ("_open", "_slice_store", "_values", "version")

    def __init__(self, slice_store: SliceStore, values: _Values, version: int) -> None:
        self._slice_store, self._values, self.version, self._open = slice_store, values, version, True

    @property
    def tensor(self) -> Tensor:
        """The values, (size,); not to be written to."""
        return self._values.tensor

    @property
    def payload(self) -> Payload:
        """The values' bytes, as a transport sends them."""
        return self._values.room.payload

    def again(self) -> Reading:
        """The same once more, to be closed on its own."""
        return self._slice_store.reading(self._values, self.version)

    def close(self) -> None:
        """Let the values change again; harmless when repeated, by one thread after the other."""
        if self._open:
            self._open = False
            self._slice_store.let_go(self._values)


class _Place:
    """All that there is of one slice."""

    def __init__(self, values: _Values, version: int) -> None:
        self.lock = threading.Lock()  # held while values or the rule's state change, or are taken for reading
        self.values, self.version = values, version
        self.kept: dict[int, _Kept] = {}


class SliceStore:
    """Slices with these values, which are copied, as of update `version`. rule: of each slice.

    memory: where values lie, so that a transport sends them best. find: what is to be known of a slice's gradient
    before an update is applied: its norm, or products of vectors; None: nothing ever is. averages: of the state of a
    slice's rule, those of its parts, if snapshots are evaluated with averages of the values in their place. The caller
    sees to it that a slice is changed by one thread at a time, and kept while it is not changed.
    """

    def __init__(
        self,
        forms: Forms,
        values: Mapping[int, Tensor],
        rule: Callable[[int], UpdateRule],
        version: int = 0,
        memory: Take | None = None,
        find: Norm | Find | None = None,
        averages: Callable[[Any], Sequence[Tensor | None]] | None = None,
    ) -> None:
        self.pool, self.forms, self._rule, self._find = BufferPool(memory), forms, rule, find
        self._averages = averages
        self._users = threading.Lock()
        self._places = {number: _Place(self._copied(tensor), version) for number, tensor in values.items()}
        self._held: dict[tuple[int, Contribution], PendingContribution] = {}
        self._summed: dict[int, _Summed] = {}  # by slice, for the update whose norm was found

    @property
    def numbers(self) -> list[int]:
        """The numbers of all slices that are kept."""
        return list(self._places)

    def hold(self, number: int, contribution: Contribution, held: PendingContribution) -> None:
        """Keep a contribution for its update."""
        self._held[number, contribution] = held

    def forget(self, number: int, contribution: Contribution) -> None:
        """Drop a contribution that no update will hold."""
        held = self._held.pop((number, contribution), None)
        if held is not None:
            held.offer.drop()

    def measure(self, due: Measurement) -> float | FoundProducts:
        """The norm or products of the sum of held contributions, which stays at hand for `apply`."""
        self._summed[due.slice] = summed = self._sum(due.slice, due.contributions)
        find: Any = self._find
        if isinstance(due, FindNorm):
            if find is None or not summed.sums:
                return 0.0
            norm: float = find(due.slice, SliceUpdate(summed.sums, len(summed.carrying), due.scale), due.kind)
            return norm
        update = SliceUpdate(summed.sums, len(summed.carrying), due.scale, due.samples)
        found: FoundProducts = find(due.slice, update, due.asked)
        return found

    def apply(self, due: Apply) -> None:
        """Apply the sum of held contributions, none perhaps: then only the version changes."""
        number = due.slice
        summed = self._summed.pop(number, None) or self._sum(number, due.contributions)
        place = self._places[number]
        try:
            with place.lock:
                if summed.sums or due.commands:
                    count, sums = len(summed.carrying), summed.sums or [None] * len(self.forms.shapes[number].lengths)
                    update = SliceUpdate(
                        sums, count, due.scale, due.samples, due.rates, due.clip, commands=due.commands
                    )
                    self._keep_state(number, place)
                    self._rule(number).apply(number, self._parts(number, self._to_write(place)), update)
                place.version = due.number
        finally:
            summed.drop(self.pool)

    def store(self, number: int, offer: Offer) -> None:
        """The first values of a slice, whose shape is known."""
        values = offer.take().view(self.forms.shapes[number].dtype)
        self._places[number] = _Place(self._copied(values), 0)
        offer.drop()

    def drop(self, number: int) -> None:
        """Drop a slice that nobody will ask for any more."""
        self.forms.shapes.pop(number, None)
        place = self._places.pop(number, None)
        if place is not None:
            self.let_go(place.values)

    def read(self, number: int) -> Reading:
        """The newest values; waits for an update that is being applied to them."""
        place = self._places[number]
        with place.lock:
            return self.reading(place.values, place.version)

    def keep(self, number: int, snapshot: int) -> None:
        """Keep the slice as it is now under the name `snapshot`."""
        place = self._places[number]
        place.kept[snapshot] = _Kept(self.reading(place.values, place.version))

    def read_kept(self, number: int, snapshot: int) -> Reading:
        """The values as of a snapshot. Raises KeyError if it is not kept."""
        return self._places[number].kept[snapshot].reading.again()

    def read_evaluated(self, number: int, snapshot: int) -> Reading:
        """Read what is evaluated of a snapshot: the values, or their averages, if there are some. Raises KeyError."""
        reading = self.read_kept(number, snapshot)
        if self._averages is None:
            return reading
        values = self._copied(reading.tensor)
        reading.close()
        self._put_averages(number, values.tensor, self.kept_state(number, snapshot))
        return Reading(self, values, reading.version)

    def read_averaged(self, number: int) -> Reading:
        """Read the newest values, with their averages in the place of those that have some."""
        place = self._places[number]
        with place.lock:
            values, version = self._copied(place.values.tensor), place.version
            self._put_averages(number, values.tensor, self._rule(number).state(number))
        return Reading(self, values, version)

    def kept_state(self, number: int, snapshot: int) -> Any:
        """The rule's state as of a snapshot. Raises KeyError if it is not kept."""
        place = self._places[number]
        with place.lock:
            kept = place.kept[snapshot]
            if kept.state is None:
                kept.state = self._rule(number).state(number)
            return kept.state

    def release(self, number: int, snapshot: int) -> None:
        """Release a slice's snapshot that nobody will ask for any more."""
        self._places[number].kept.pop(snapshot).reading.close()

    def let_go(self, values: _Values) -> None:
        """A reader of the slice's values has finished: they may be overwritten once nobody reads them."""
        with self._users:
            values.users -= 1
            free = values.users == 0
        if free:
            self.pool.give(values.room)

    def _put_averages(self, number: int, values: Tensor, state: Any) -> None:
        averages = () if self._averages is None else self._averages(state)
        for part, average in zip(self._parts(number, values), averages, strict=False):  # none of buffers
            if average is not None:
                part.copy_(average)

    def _parts(self, number: int, values: Tensor) -> Sequence[Tensor]:
        """The values of a slice, (size,), by its parts; views."""
        lengths = self.forms.shapes[number].lengths
        return [values] if len(lengths) == 1 else values.split_with_sizes(lengths)

    def _sum(self, number: int, names: Sequence[Contribution]) -> _Summed:
        held = [self._held.pop((number, name)) for name in names]
        summed = _Summed(held, self.pool.take(self.forms.shapes[number].size_bytes))
        if carrying := summed.carrying:
            scratch = summed.scratch.tensor.view(self._places[number].values.tensor.dtype)
            try:
                summed.sums = self._sums(number, carrying, scratch)
            except BaseException:
                summed.drop(self.pool)
                raise
        return summed

    def _sums(self, number: int, held: Sequence[PendingContribution], scratch: Tensor) -> list[Tensor | None]:
        """The sum of what is held, by parts; None: nobody used it."""
        used = 0
        for one in held:
            used |= one.used
        pushed = [(one.form, one.offer.take()) for one in held]
        total = self.forms.total(number, pushed, scratch)
        if self._rule(number).changes_sums and total is not scratch and held[0].offer.lent:
            total = scratch.copy_(total)
        return [one if used >> place & 1 else None for place, one in enumerate(self._parts(number, total))]

    def _keep_state(self, number: int, place: _Place) -> None:
        """Before it changes: what is kept of snapshots is that of now."""
        for kept in list(place.kept.values()):
            if kept.state is None:
                kept.state = self._rule(number).state(number)

    def _to_write(self, place: _Place) -> Tensor:
        """The newest values where nobody else reads them, in a copy if need be."""
        old = place.values
        with self._users:
            alone = old.users == 1
        if not alone:
            place.values = _Values(self.pool.take(len(old.room.payload)), old.tensor.dtype)
            place.values.tensor.copy_(old.tensor)
            self.let_go(old)
        return place.values.tensor

    def reading(self, values: _Values, version: int) -> Reading:
        """A reader of the slice's values begins: they are not overwritten until it has finished."""
        with self._users:
            values.users += 1
        return Reading(self, values, version)

    def _copied(self, tensor: Tensor) -> _Values:
        values = _Values(self.pool.take(tensor.numel() * tensor.element_size()), tensor.dtype)
        values.tensor.copy_(tensor)
        return values
