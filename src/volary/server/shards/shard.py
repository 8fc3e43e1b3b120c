"""Decides what is done with slices of parameters: a plain state machine, without tensors, threads or a clock.

It is told what has arrived and what the roster has decided, and answers with what is to be done. Replicas of a shard
are told the same and so do the same: whatever one has acknowledged, its partner has as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from volary.server.protocol.clocks import ClockSet
from volary.server.protocol.header import AVERAGED, NEWEST, Form, Header, MessageKind
from volary.server.protocol.updates import Closing, Contribution
from volary.server.protocol.vectors import Combine, FoundProducts
from volary.server.shard_rule import ShardRule
from volary.server.shards.actions import (
    Action,
    Apply,
    Forget,
    Give,
    Hold,
    KeepSlice,
    KeptAll,
    ReleaseSlice,
    Respond,
    SetValues,
)
from volary.server.shards.measuring import all_found, measurement
from volary.server.shards.update_log import UpdateLog

UNSET = -1  # the version of a slice that has no values yet


@dataclass
class _Slice:
    """version: updates applied. busy: one is being applied. held: with what version each was computed.

    measured: the newest update of which something was asked; measuring: it is being found.

    pulls: what waits to be answered, for each worker at most one for the values and one for kept ones.
    """

    size_bytes: int
    version: int
    update_log: UpdateLog
    busy: bool = False
    measured: int = -1
    measuring: bool = False
    held: dict[Contribution, int] = field(default_factory=dict)
    pulls: dict[tuple[int, bool], Header] = field(default_factory=dict)


@dataclass
class _KeptSnapshot:
    """A snapshot: as of which update, and how many slices have not come there yet."""

    number: int
    missing: int


class Shard:
    """The slices that one server keeps, of however many shards.

    sizes: bytes of each slice's values; with a `local` rule none, as slices come with their first values (SET).
    applied: updates that the values stand for. Workers are known by their numbers, which never come again; a peer is
    the worker at the other end of a connection, of which it has one at a time (`left` before it has another). shards:
    of slices, by which norms are told apart; of others it is 0. each: workers whose numbers follow each other that make
    a contribution together, under the number of their replica: each pushes other slices of it.
    staleness: how often a worker's contribution was applied so many updates after the values that it was computed
    with. late: contributions to slices that came after they were settled. refused: messages without sense. By worker.
    """

    def __init__(
        self,
        sizes: Mapping[int, int],
        applied: int = 0,
        local: ShardRule | None = None,
        shards: Mapping[int, int] | None = None,
        each: int = 1,
    ) -> None:
        self.staleness: Counter[tuple[int, int]] = Counter()
        self.late: Counter[int] = Counter()
        self.refused: Counter[int] = Counter()
        self._local, self._shards, self._each = local, shards or {}, each
        self._update_log = UpdateLog(len(sizes), applied)
        self._slices = {number: _Slice(size, applied, self._update_log) for number, size in sizes.items()}
        self._gone = ClockSet()  # workers
        self._found: dict[int, dict[int, float | FoundProducts]] = {}  # by update, and by slice
        self._answers: dict[int, float | tuple[Combine, ...]] = {}  # by update, what becomes of it
        self._snapshots: dict[int, _KeptSnapshot] = {}
        self._released = ClockSet()  # snapshots

    def version(self, number: int) -> int:
        """Updates that the values of slice `number` stand for; UNSET if it has none."""
        return self._slices[number].version if number in self._slices else UNSET

    @property
    def oldest(self) -> int:
        """The newest update that all slices hold."""
        return min((one.version for one in self._slices.values()), default=self._update_log.last)

    # What workers say

    def wants(self, peer: int, header: Header) -> bool:
        """Whether the payload behind a header may be of use; if not it never will be, and can be read past.

        Lengths of other forms than EXACT are the host's to judge.
        """
        if header.kind not in (MessageKind.PUSH, MessageKind.SET) or self._problem(peer, header):
            return False
        one = self._slices.get(header.slice)
        if header.kind == MessageKind.SET:
            return one is None
        contribution = self._contribution(header)
        return one is None or not (contribution in one.held or self._settled(one, contribution))

    def arrived(self, peer: int, header: Header) -> list[Action]:
        """A whole message. The payload of a PUSH or SET is unneeded unless Hold or SetValues is among the answers."""
        if problem := self._problem(peer, header):
            return self._refuse(peer, header, problem)
        if header.kind == MessageKind.PUSH:
            return self._pushed(peer, header)
        if header.kind == MessageKind.PULL:
            return self._pulled(peer, header)
        return self._set(peer, header)

    def left(self, peer: int) -> list[Action]:
        """The connection to a worker has ended: its pulls are forgotten, what is held of it stays."""
        for one in self._slices.values():
            one.pulls.pop((peer, False), None)
            one.pulls.pop((peer, True), None)
        return []

    def drop(self, number: int) -> None:
        """Drop the slice of that number, to which nobody will push any more; with a `local` rule."""
        self._slices.pop(number, None)

    # What the roster says

    def close(self, closing: Closing) -> list[Action]:
        """An update is announced, the next in order; once or again."""
        if not self._update_log.close(closing):
            return []
        actions: list[Action] = []
        if not self._slices and closing.waits:
            actions.append(all_found(closing, {}))
        for number, one in self._slices.items():
            actions += [Forget(number, late) for late in closing.dropped if one.held.pop(late, None) is not None]
            actions += self._advance(number, one)
        return actions

    def clip(self, update: int, factor: float) -> list[Action]:
        """An update whose norm was found may be applied, times this factor. Told once or again."""
        return self._answered(update, factor)

    def direct(self, update: int, commands: tuple[Combine, ...]) -> list[Action]:
        """An update whose products were found is made by these commands. Told once or again."""
        return self._answered(update, commands)

    def keep(self, snapshot: int, number: int) -> list[Action]:
        """Keep all slices as of update `number`, which none has passed. Told once or again."""
        if snapshot in self._snapshots or snapshot in self._released:
            return []
        self._snapshots[snapshot] = _KeptSnapshot(number, len(self._slices))
        actions: list[Action] = []
        for slice_number, one in self._slices.items():
            assert one.version + one.busy <= number, f"slice {slice_number} has passed update {number}, to be kept"
            if one.version == number:
                actions += self._kept(slice_number, snapshot)
                actions += self._give(slice_number, one)
        return actions if self._slices else [KeptAll(snapshot)]

    def release(self, snapshot: int) -> list[Action]:
        """Drop a snapshot that nobody needs any more."""
        actions: list[Action] = []
        known = self._snapshots.pop(snapshot, None)
        self._released.add(snapshot)
        for number, one in self._slices.items():
            if known and one.version >= known.number:
                actions.append(ReleaseSlice(number, snapshot))
            for (peer, kept), header in list(one.pulls.items()):
                if kept and header.snapshot == snapshot:
                    del one.pulls[peer, kept]
                    actions += self._refuse(peer, header, _released(snapshot))
        return actions

    def gone(self, worker: int) -> list[Action]:
        """A worker, or replica, pushes no more, and no update that is not announced yet will have anything of it."""
        self._gone.add(worker)
        actions = [one for each in range(self._each) for one in self.left(worker * self._each + each)]
        for number, one in self._slices.items():
            for contribution in [held for held in one.held if held.worker == worker]:
                if one.update_log.number(contribution) is None:
                    del one.held[contribution]
                    actions.append(Forget(number, contribution))
            one.update_log.gone(worker)
        return actions

    # What the host says

    def measured(self, number: int, update: int, found: float | FoundProducts) -> list[Action]:
        """The host has found the norm of an update's gradient of slice `number`, or the products that it asks for."""
        one, closing = self._slices[number], self._update_log.closing(update)
        one.measuring = False
        pieces = self._found.setdefault(update, {})
        pieces[number] = found
        if update in self._answers:  # others have found all that was needed
            return self._advance(number, one)
        if len(pieces) < len(self._slices) or closing is None or not closing.waits:
            return []
        by_shard: dict[int, list[Any]] = {}
        for each in sorted(pieces):  # however they came: replicas are to find the same
            by_shard.setdefault(self._shards.get(each, 0), []).append(pieces[each])
        return [all_found(closing, by_shard)]

    def applied(self, number: int, update: int) -> list[Action]:
        """The host has done Apply of an update to slice `number`."""
        one = self._slices[number]
        assert one.busy and update == one.version + 1, f"slice {number} was not to be given update {update}"
        one.busy = False
        return [*self._passed(number, one), *self._advance(number, one)]

    def _answered(self, update: int, answer: float | tuple[Combine, ...]) -> list[Action]:
        closing = self._update_log.closing(update)
        if closing is None or not closing.waits:
            return []
        self._answers[update] = answer
        return [action for number, one in self._slices.items() for action in self._advance(number, one)]

    def _problem(self, peer: int, header: Header) -> str:
        """Why a message makes no sense, whenever it comes."""
        if header.kind not in (MessageKind.PUSH, MessageKind.PULL, MessageKind.SET):
            return f"a server does not take {header.kind.name}"
        if header.worker != peer:
            return f"worker {peer} speaks as {header.worker}"
        one = self._slices.get(header.slice)
        if one is None:
            return "" if self._local else f"slice {header.slice} is not kept here"
        if header.kind == MessageKind.PULL:
            return f"PULL takes no payload, but {header.length} bytes follow" if header.length else ""
        if header.kind == MessageKind.SET and not self._local:
            return f"slice {header.slice} is not set by workers"
        if header.form == Form.DIFFERENCE or (header.kind == MessageKind.SET and header.form != Form.EXACT):
            return f"{header.kind.name} does not come as {header.form.name}"
        if header.form == Form.EXACT and header.length != one.size_bytes:
            return f"slice {header.slice} has {one.size_bytes} bytes, not {header.length}"
        return ""

    def _contribution(self, header: Header) -> Contribution:
        return Contribution(header.worker // self._each, header.clock)

    def _pushed(self, peer: int, header: Header) -> list[Action]:
        number, one = header.slice, self._slices.get(header.slice)
        if one is None:
            return self._refuse(peer, header, f"slice {number} has no values yet")
        contribution = self._contribution(header)
        if contribution in one.held:
            return [self._held(one, header)]
        if self._settled(one, contribution):
            self.late[contribution.worker] += 1
            return [self._held(one, header)]
        one.held[contribution] = header.version
        if self._local:
            self._close_locally(one, self._local)
        return [Hold(number, contribution), self._held(one, header), *self._advance(number, one)]

    def _held(self, one: _Slice, header: Header) -> Respond:
        """Answer that it is held; with a `local` rule the version is that of its update, if that is known."""
        known = one.update_log.number(self._contribution(header)) if self._local else None
        version = one.version if known is None else known
        return Respond(
            header.worker, Header(MessageKind.HELD, header.slice, header.worker, header.clock, version, length=0)
        )

    def _settled(self, one: _Slice, contribution: Contribution) -> bool:
        """Whether the slice has had it, or will not have it."""
        number = one.update_log.number(contribution)
        if number is not None:
            return number <= one.version + one.busy
        return one.update_log.settled(contribution) or contribution.worker in self._gone

    def _close_locally(self, one: _Slice, rule: ShardRule) -> None:
        waiting = (held for held in one.held if not one.update_log.settled(held))
        if closing := rule.closing(one.update_log.last + 1, waiting):
            one.update_log.close(closing)

    def _pulled(self, peer: int, header: Header) -> list[Action]:
        number, one = header.slice, self._slices.get(header.slice)
        if one is None:
            return self._refuse(peer, header, f"slice {number} has no values yet")
        if header.snapshot in self._released:
            return self._refuse(peer, header, _released(header.snapshot))
        earlier = one.pulls.get((peer, header.snapshot > 0))
        if earlier is None or earlier.clock <= header.clock:
            one.pulls[peer, header.snapshot > 0] = header
        return self._give(number, one)

    def _set(self, peer: int, header: Header) -> list[Action]:
        held = Respond(peer, Header(MessageKind.HELD, header.slice, header.worker, header.clock, length=0))
        if header.slice in self._slices:
            return [held]
        self._slices[header.slice] = _Slice(header.length, 0, UpdateLog(1, 0))
        return [SetValues(header.slice), held]

    def _advance(self, number: int, one: _Slice) -> list[Action]:
        """Begin with the next update, if all of it is here."""
        actions: list[Action] = []
        while not (one.busy or one.measuring) and (closing := one.update_log.closing(one.version + 1)):
            if any(contribution not in one.held for contribution in closing.contributions):
                break
            if not closing.contributions:
                actions += self._passed(number, one)
                continue
            if closing.waits and closing.number not in self._answers:
                if one.measured < closing.number:
                    one.measured, one.measuring = closing.number, True
                    actions.append(measurement(number, closing))
                break
            for contribution in closing.contributions:
                behind = max(0, one.version - one.held.pop(contribution))
                self.staleness[contribution.worker, behind] += 1
            one.busy = True
            due = closing.contributions, closing.scale, closing.samples, closing.rates
            answer = self._answers.get(closing.number, 1.0)
            clip, commands = (1.0, answer) if isinstance(answer, tuple) else (answer, ())
            actions.append(Apply(number, closing.number, *due, clip, commands))
        return actions

    def _passed(self, number: int, one: _Slice) -> list[Action]:
        """Move the slice to its next version."""
        one.version += 1
        one.update_log.applied(one.version)
        if one.update_log.closing(one.version) is None:  # all slices have it
            self._answers.pop(one.version, None)
            self._found.pop(one.version, None)
        actions: list[Action] = []
        for snapshot, kept in list(self._snapshots.items()):
            if kept.number == one.version:
                actions += self._kept(number, snapshot)
        return actions + self._give(number, one)

    def _kept(self, number: int, snapshot: int) -> list[Action]:
        kept = self._snapshots[snapshot]
        kept.missing -= 1
        return [KeepSlice(number, snapshot), *([] if kept.missing else [KeptAll(snapshot)])]

    def _give(self, number: int, one: _Slice) -> list[Action]:
        """Answer the pulls that can be answered."""
        actions: list[Action] = []
        for place, header in list(one.pulls.items()):
            version = self._due(one, header)
            if version is not None:
                del one.pulls[place]
                answer = Header(
                    MessageKind.VALUES, number, header.worker, header.clock, version, header.form, header.snapshot
                )
                actions.append(Give(header.worker, answer))
        return actions

    def _due(self, one: _Slice, header: Header) -> int | None:
        """The version that a pull can be answered with now. Values that are just changing are not given."""
        if header.snapshot not in (0, AVERAGED, NEWEST):
            snapshot = self._snapshots.get(header.snapshot)
            return snapshot.number if snapshot and snapshot.number <= one.version else None
        return one.version if header.version <= one.version and not one.busy else None

    def _refuse(self, peer: int, header: Header, sentence: str) -> list[Action]:
        self.refused[peer] += 1
        if header.kind == MessageKind.REFUSED:  # an answer to it would be answered in turn
            return []
        answer = Header(
            MessageKind.REFUSED, header.slice, header.worker, header.clock, header.kind, snapshot=header.snapshot
        )
        return [Respond(peer, answer._replace(length=len(sentence.encode())), sentence)]


def _released(snapshot: int) -> str:
    return f"snapshot {snapshot} is not kept any more"
