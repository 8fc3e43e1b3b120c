"""Which units are here: gathered before they are used, the next ones ahead of time, and freed when room is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from volary.exchange.gathering.pulls import Pulls
from volary.exchange.gathering.units import Unit, units
from volary.run.machine.allocator import return_freed_memory

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

    from volary.comm.groups.group import Group
    from volary.comm.groups.mesh import MeshMessage
    from volary.exchange.gradients.bucket import Chunk, ParameterGate
    from volary.sharding.holdings import Holdings

Phase = Literal["evaluate", "forward", "backward"]
Use = tuple[Phase, int]  # of the unit with this number
ROOM = 9 / 8  # of what the largest unit takes: small ones beside it do not drive it out
MOST_AHEAD = 8  # units that are looked at for what is gathered ahead of time


class GatheredParameters:
    """Parameters of which each value is with its owner, and with others while they use it. A collective call.

    named: in the network's order. What others own of all units that are here takes about as much memory as of the
    largest, unless several are in use at once. So small units stay, and what forward has used last is still here when
    backward begins. What follows what is learned from the uses before. `updated` is called from any thread, the rest
    from the training thread.
    """

    def __init__(self, group: Group, named: Sequence[tuple[str, Parameter]], holdings: Holdings) -> None:
        return_freed_memory()  # whoever gathers has more time than memory
        self.units = list(units(named, holdings))
        bytes_of = [one.values.numpy().data for one in self.units]
        self._pulls = Pulls(
            group,
            [
                [[memory[start:end] for start, end in own] for own in unit.owned]
                for unit, memory in zip(self.units, bytes_of, strict=True)
            ],
        )
        self.room_bytes = int(ROOM * max(one.others_bytes for one in self.units))
        self._rank = holdings.rank
        self._by_name = {name: unit for unit in self.units for name, _ in unit.named}
        self._by_gate = {id(unit.gate): unit for unit in self.units}
        self._coming: dict[Unit, list[MeshMessage]] = {}
        self._held: dict[Unit, Phase] = {}  # those that are here or coming, the longest unused first
        self._next: dict[Use | None, Use] = {}  # what was used after a use; None: what comes first in a step
        self._last: Use | None = None
        self._changed_by: list[list[int]] = []  # by chunk, the units of which this rank updates something

    @property
    def gates(self) -> dict[int, ParameterGate]:
        """The gate of each parameter, by its id."""
        return {id(parameter): unit.gate for unit in self.units for _, parameter in unit.named}

    @property
    def sent_bytes(self) -> int:
        """Payload that this rank has sent."""
        return self._pulls.sent_bytes

    @property
    def received_bytes(self) -> int:
        """Payload that this rank has received, or is about to."""
        return self._pulls.received_bytes

    def of(self, gate: ParameterGate) -> Unit | None:
        """The unit with this gate; None if it is another's."""
        return self._by_gate.get(id(gate))

    def begin(self, broadcast: Callable[[Tensor], None] | None) -> None:
        """Keep this rank's own values alone. broadcast: gives all ranks rank 0's before; None: each has what it owns.

        Once values are with their owners alone this does nothing. A collective call.
        """
        for unit in self.units:
            if unit.state == "here" and unit not in self._held:
                if broadcast is not None:
                    broadcast(unit.values)
                unit.free()
                unit.gate.waits = 1

    def follow(self, chunks: Sequence[Chunk]) -> None:
        """Updates are made of these chunks from now on, each at once; others are given what they ask for."""
        found = [{self._by_name[part.name].number for part in chunk.parts if self._owns(part.name)} for chunk in chunks]
        self._changed_by = [sorted(one) for one in found]
        self._pulls.follow([sum(unit.number in one for one in found) for unit in self.units])

    def next_version(self) -> None:
        """An update is under way: what is here is too old, and what is used next is asked for."""
        self.forget()
        self._pulls.next_version()
        self._ask_ahead()

    def forget(self) -> None:
        """Keep this rank's own values alone, outside of a step: what is here of others is too old."""
        for unit in list(self._held):
            self._arrive(unit)
            self._free(unit)
        for unit in self.units:
            unit.pins, unit.gate.waits = 0, 1
        self._last = None

    def updated(self, chunk: Chunk) -> None:
        """This rank has updated what it owns of `chunk`; from any thread."""
        self._pulls.updated(self._changed_by[chunk.index])

    def pull(self, unit: Unit, wait_for: Callable[[Callable[[], bool]], None]) -> None:
        """Return when the whole unit is here, as of the newest version. Raises PeerLost.

        wait_for: returns when something that an update makes true is.
        """
        if unit.state == "absent":
            self._make_room(unit, keep=[])
            self._ask(unit)
        if not self._pulls.own_is_new(unit.number):
            wait_for(lambda: self._pulls.own_is_new(unit.number))
        self._arrive(unit)

    def use(self, unit: Unit, phase: Phase) -> None:
        """The unit, which is here, is used from now on, until it is let `go`."""
        unit.pins += 1
        self._held.pop(unit, None)
        self._held[unit] = phase
        use = phase, unit.number
        if use != self._last:
            self._next[self._last], self._last = use, use
        self._ask_ahead()

    def go(self, unit: Unit) -> None:
        """One use of the unit is over."""
        unit.pins -= 1
        if not unit.pins:
            self._ask_ahead()

    def close(self) -> None:
        """Give others nothing until it follows again. Harmless when repeated."""
        self._pulls.close()

    def _owns(self, name: str) -> bool:
        return bool(self._by_name[name].owned[self._rank])

    def _ask(self, unit: Unit) -> None:
        unit.state, self._coming[unit] = "coming", self._pulls.ask(unit.number)
        self._held[unit] = "forward"

    def _arrive(self, unit: Unit) -> None:
        for message in self._coming.pop(unit, ()):
            message.wait()
        unit.state = "here"

    def _free(self, unit: Unit) -> None:
        del self._held[unit]
        unit.free()

    def _ask_ahead(self) -> None:
        """Ask for what is used next, as far as there is room beside what is used before it."""
        soon, phase, use = list[Unit](), self._last and self._last[0], self._next.get(self._last)
        while use is not None and len(soon) < MOST_AHEAD:
            if phase == "backward" != use[0]:
                return  # perhaps of the next step, after its update
            phase, unit = use[0], self.units[use[1]]
            soon.append(unit)
            if unit.state == "absent":
                if not self._make_room(unit, keep=soon):
                    return
                self._ask(unit)
            use = self._next.get(use)

    def _make_room(self, wanted: Unit, keep: Sequence[Unit]) -> bool:
        """Free what is used last of all, until there is room for `wanted`; nothing of `keep`. Whether there is."""
        free = [unit for unit in self._held if not unit.pins and unit.state == "here" and unit not in keep]
        free.sort(key=lambda unit: self._held[unit] != "backward")  # which comes to each unit once
        missing = sum(unit.others_bytes for unit in self._held) + wanted.others_bytes - self.room_bytes
        if keep and sum(unit.others_bytes for unit in free) < missing:
            return False
        gone: list[Unit] = []
        while free and missing > 0:
            gone.append(free.pop(0))
            missing -= gone[-1].others_bytes
        for unit in reversed(gone):
            if missing + unit.others_bytes <= 0:  # small, and there is room without it
                missing += unit.others_bytes
            else:
                self._free(unit)
        return missing <= 0
