"""The workers of a loop of one's own with `recover: memory`: if some are lost, the others meet, wherever their code is.

All workers make the same steps and calls, one after the other. Each of these ends with a word of all, `_end`: who has
heard it knows that all others had come so far, whoever is lost after that. So those that are left find out whether the
one under way counts: it does if one of them has heard the word, or all are at it. Else a call is made again. A step is
left out on all of them, with the whole round of the loop that it is in (see `LoopRounds`), also by those that had not
begun it. Others join them between two steps: nobody goes on before these have said the word, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec
import torch

from volary.comm.control.errors import ConnectionLost
from volary.comm.groups.blocking import add_up
from volary.errors import PeerLost, Stopped
from volary.run.control.requests import ChangeMembers, WorkerRequest
from volary.run.launch.members import GroupMembers
from volary.train.own.recovering.arriving import (
    LOOP,
    WHY_NOT,
    JoiningWorker,
    facts_of,
    hand_over,
    refuse_unknown,
    taken_over,
)
from volary.train.own.recovering.round_before import RoundBefore
from volary.train.own.recovering.rounds import LoopRounds
from volary.train.state.seeds import generators_state, restore_generators
from volary.train.worker.connect import alone, gathered, joined

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from volary.comm.groups.group import Group
    from volary.train.member.compare import Facts
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse
    from volary.train.own.recovering.round_before import Updated
    from volary.train.recording.recorder import Recorder

Found = TypeVar("Found")
_NEW = -1  # in place of calls and steps that count: of a worker that is to get the state of others


class Regrouped(Protocol):
    """A loop, which goes on in another group where workers are lost."""

    def suspend(self) -> None:
        """Let go of the group, whose connections are cut; harmless when repeated."""
        ...

    def regroup(self, group: Group, *, leaves_out: bool) -> None:
        """Go on in another group. A collective call. leaves_out: the round that is under way, or the next one."""
        ...

    def leave_out(self) -> None:
        """A round is over of which nothing comes."""
        ...

    def state(self) -> dict[str, Any]:
        """The state of the loop for workers that join: plain values and tensors. A collective call."""
        ...

    def take_over(self, state: Mapping[str, Any], workers: int) -> None:
        """Begin with the state of others, before the first group with them, of so many workers."""
        ...


class LoopMembers:
    """See the head of this file. members: who trains, in the order of the group. loop: what follows them.

    rounds: of the loop. has_left: this worker was asked to leave, and others go on. equal: workers go on with what they
    have. welcomed: how often others joined these.
    """

    recovers = True

    def __init__(
        self,
        member: Membership,
        workers: int,
        recorder: Recorder,
        pulse: Pulse,
        device: torch.device,
        backend: str,
    ) -> None:
        self._member, self._recorder, self._pulse, self._news = member, recorder, pulse, pulse.members
        self._device, self._backend = device, backend
        self.members = self._trained = GroupMembers(tuple(range(workers)))
        self.loop: Regrouped | None = None
        self.rounds, self.has_left, self.equal, self.welcomed = LoopRounds(), False, False, 0
        self._joining = JoiningWorker(member, recorder, pulse, waits=member.place.rank >= workers)
        self._facts: Facts | None = None
        self._announced: Group | None = None  # the newest in which was said what this loop is
        self._handed: Mapping[str, Any] = {}  # between two steps, for those that join
        self._meeting = ExitStack()
        self._words: Group | None = None  # of all, for nothing but their words
        self._ended = 0  # calls and steps that count

    @contextmanager
    def meet(self, facts: Facts) -> Iterator[Group]:
        """Be in the group of all workers, for a while, and in those that follow. facts: as of `joined`. Raises as that
        does.
        """
        self._facts = facts
        with self._meeting:
            if self.waits:
                self._joining.compare_code(facts)
                group = self._words = alone()
            else:
                group = self._join(self._placed(), facts)
                self._words = self._apart(group)
            yield group

    @property
    def waits(self) -> bool:
        """Whether this worker joins others, and has not met them."""
        return self._joining.waits

    @property
    def awaited(self) -> tuple[int, int]:
        """The place that this worker would have if others trained with it now, and of how many."""
        others = self._news.newest.ranks or self._trained.ranks
        return len(others), len(others) + 1

    def require_others(self, called: str) -> None:
        """Raise BadInput for a call of all workers, if this one has joined them and had no batch with them yet."""
        self._joining.require_others(called)

    def require_joined(self) -> None:
        """Raise BadInput if this worker joins others, and has not met them."""
        self._joining.require_joined()

    def fed(self) -> None:
        """This worker has a batch with the others."""
        self._joining.late = False

    def announce(self, group: Group, models: Sequence[nn.Module], names: Sequence[str], why: str) -> None:
        """Let those that may join know what this loop is, once in each group.

        names: that `worker.restore` was given. why: nobody can join it; empty if they can.
        """
        if self._announced is not group:
            self._announced = group
            if group.leads:
                group.bulletin.post(LOOP, {**facts_of(models, names), WHY_NOT: why})

    def enter(self, models: Sequence[nn.Module], named: Mapping[str, Any]) -> None:
        """Train with the others from here on. named: what `worker.restore` is given. Raises as `JoiningWorker.wait`."""
        refuse_unknown(named)
        try:
            self.members = self._joining.wait(facts_of(models, list(named)))
        except Stopped:
            self.has_left = True
            raise
        self._meet_again(None, closes=False)
        self.make(lambda: None)

    @property
    def leaves_out(self) -> bool:
        """Whether the round that is under way, or the next one, is left out."""
        return self.rounds.leaves_out

    @property
    def left_out(self) -> int:
        """The newest round that was left out; 0: there is none."""
        return self.rounds.left_out

    def make(self, act: Callable[[], Found]) -> Found:
        """Make a call that all make; with those that are left if some are lost meanwhile. Raises as `step`."""
        before = generators_state()
        while not (done := self._made(act, closes=False)):
            restore_generators(before)
        return done[0]

    def step(self, act: Callable[[], object]) -> bool:
        """Make a step that all make; whether it counts. Raises what `act` does, and PeerLost if nobody goes on."""
        self.rounds.begin_without()
        if not self.leaves_out and self._made(act, closes=True):
            return True
        if not self.rounds.under_way:  # it was found to be through as the others met
            return False
        self._leave_out()
        return False

    def begin(
        self, generators: Any, named: Sequence[Any], optimizers: Sequence[Optimizer], models: Sequence[Updated]
    ) -> int:
        """An iteration may begin here: with a batch, or a backward pass. Returns its round.

        generators, named, optimizers, models: as of `RoundBefore`.
        """
        return self.rounds.begin(lambda: RoundBefore(generators, named, optimizers, models, self._recorder))

    def hold(self, optimizer: Optimizer) -> None:
        """An optimiser is about to update this worker's own parameters."""
        self.rounds.hold(optimizer)

    def own_step(self) -> bool:
        """This worker has updated its own parameters; whether that stands so far. Raises as `step`."""
        self.rounds.stepped()
        if self._is_over:
            self._meet_again(PeerLost("a worker is lost, without which nothing comes of this round"), closes=False)
        elif self.leaves_out and self.rounds.through:
            self._leave_out()
        else:
            return not self.leaves_out
        return False

    @property
    def asked(self) -> int:
        """How many requests there are that others follow these workers, as far as this one knows."""
        return len(self._requests)

    @property
    def _requests(self) -> list[ChangeMembers]:
        known = [msgspec.convert(one, WorkerRequest) for one in self._pulse.requests]
        return [one for one in known if isinstance(one, ChangeMembers) and one.number == self.members.number]

    def change(self) -> None:
        """Let others follow those that there are, between two steps. Raises Stopped for who leaves."""
        assert self.loop is not None, "a loop has begun"
        number = self.members.number
        self._handed = self.make(self.loop.state)  # nobody ends its connections before all are here
        if self.members.number == number:
            known = self._requests or [ChangeMembers(number)]  # others may have heard of more: nobody hands over
            self._pulse.pause(known[-1])
            self._meet_again(PeerLost("the members of the run change"), closes=False)
        self.make(lambda: None)  # nor goes on before those that join have what they begin with
        self._handed = {}

    def take_back(self) -> None:
        """If the round before was left out, let the loop's values be as they were before it."""
        self.rounds.take_back()

    def stand(self) -> None:
        """A step is made of what was agreed on before the newest round, whatever comes of that."""
        self.rounds.stand()

    def _made(self, act: Callable[[], Found], *, closes: bool) -> list[Found]:
        """The value of `act`, alone in a list, if it counts; else an empty list. closes: a round."""
        done = list[Found]()
        try:
            done.append(act())
            self._end()
        except Exception as error:
            if not self._is_loss(error):
                raise
            return done if self._meet_again(PeerLost(str(error)), closes=closes, ready=bool(done)) else []
        self._count(closes)
        return done

    def _count(self, closes: bool) -> None:
        self._ended += 1
        if closes:
            self.rounds.close()

    def _leave_out(self) -> None:
        assert self.loop is not None, "a loop has begun"
        self.rounds.leave_out()
        self.loop.leave_out()

    def _end(self) -> None:
        """The word of all that a call or step is done on each."""
        assert self._words is not None, "they have met"
        if self._words.size > 1:
            with self._recorder.waiting():
                add_up(torch.zeros(1), self._words)

    def _is_loss(self, error: Exception) -> bool:
        """While members change, what breaks in a worker is most likely the exchange."""
        by_gloo = isinstance(error, RuntimeError) and "gloo" in str(error).lower()
        return isinstance(error, PeerLost | ConnectionLost) or by_gloo or self._is_over

    @property
    def _is_over(self) -> bool:
        return self._news.newest.number != self.members.number

    def _await_members(self, lost: PeerLost) -> None:
        """Wait for those who follow. lost: what was seen of a loss. Raises Stopped if this worker leaves, PeerLost."""
        with self._recorder.waiting():
            members = self._news.after(self.members, lost)
        leaving = [rank for request in self._requests for rank in request.leaving]  # of those who have been
        self.members = members
        if self._member.place.rank not in self.members.ranks:
            if self._member.place.rank in leaving:
                self.has_left = True
                raise Stopped("this worker leaves the run, as it was asked to")
            raise PeerLost(f"the run goes on without rank {self._member.place.rank}")

    def _meet_again(self, lost: PeerLost | None, *, closes: bool, ready: bool = False) -> bool:
        """Meet with those that are left, until it succeeds; whether what was under way counts.

        lost: what was seen of a loss; None: those are named that are to meet. closes: what was under way is a round.
        ready: all that it takes from this worker is done.
        """
        counts = False
        while True:
            if lost is not None:
                self._await_members(lost)
            try:
                known = self._known(ready=ready and not counts)
                newest = max(ended for ended, *_ in known)
                if newest > 0 and ready and not counts and (self._ended < newest or all(one for _, one, _ in known)):
                    counts = True
                    self._count(closes)
                ready = ready and counts
                self.rounds.leave_out_to(max(tuple(one) for *_, one in known))
                self.rounds.let_go()
                if newest > 0:
                    self._follow(newest, [place for place, (ended, *_) in enumerate(known) if ended == _NEW])
            except Exception as error:
                if not self._is_loss(error):
                    raise
                lost = PeerLost(str(error))
                continue
            if newest <= 0:
                raise PeerLost(f"{lost}, before all workers had ended a first step, round or call")
            if self.rounds.updates and self.leaves_out and self.rounds.through:
                self._leave_out()
            return counts

    def _known(self, *, ready: bool) -> list[Any]:
        """How far each of those is that are left, in their order."""
        assert self.loop is not None, "a loop has begun"
        self.loop.suspend()
        self._meeting.close()
        own = [_NEW, True, self.rounds.position] if self.waits else [self._ended, ready, self.rounds.position]
        number, interrupting = self.members.number, partial(self._news.interrupting, self.members)
        return gathered(self._placed(), self._recorder, number, "position", own, interrupting)

    def _follow(self, newest: int, new: Sequence[int]) -> None:
        """Be in the next group. newest: calls and steps that count. new: the places of those that join."""
        assert self.loop is not None, "a loop has begun"
        placed, before = self._placed(), self._trained
        group = self._join(placed, None)
        self._words = self._apart(group)
        self._recorder.place = placed.place.rank
        if group.leads:
            group.bulletin.post("code", self._facts)
        if self.waits:
            state = taken_over(group)
            self._ended = newest
            self.rounds.go_on_from(state["rounds"])
            self.loop.take_over(state, group.size)
        elif new and group.leads:
            hand_over({**self._handed, "rounds": self.rounds.closed}, group, new)
        self.equal, self.welcomed = not new, self.welcomed + bool(new)
        self.loop.regroup(group, leaves_out=self.leaves_out)
        self.rounds.regrouped()
        self.equal = self._joining.waits = False
        self._trained = self.members
        if group.leads:
            lost, more = (
                [rank for rank in one.ranks if rank not in other.ranks]
                for one, other in ((before, self.members), (self.members, before))
            )
            spares = {"spares": more} if more else {}
            self._recorder.event("recovered", workers=group.size, lost=lost, source="memory", **spares)

    def _join(self, member: Membership, facts: Facts | None) -> Group:
        by_topic = None if facts is None else {"code": facts}
        number, interrupting = self.members.number, partial(self._news.interrupting, self.members)
        return self._meeting.enter_context(
            joined(member, self._recorder, self._device, self._backend, by_topic, number, interrupting)
        )

    def _placed(self) -> Membership:
        ranks = self.members.ranks
        place = replace(self._member.place, rank=ranks.index(self._member.place.rank), world_size=len(ranks))
        return replace(self._member, place=place)

    @staticmethod
    def _apart(group: Group) -> Group:
        return group if group.size == 1 else group.divided([list(range(group.size))])
