"""The simulation is worth something: each of these mistakes breaks a promise in some schedule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import msgspec
import pytest

from simulation._models import MODELS, keeps_what_all_promise
from simulation._run import Run
from volary.consistency.bsp import Bsp
from volary.consistency.closing.bounded import BoundedCloser
from volary.consistency.closing.in_turn import InTurnCloser
from volary.consistency.closing.with_all import SynchronousCloser
from volary.consistency.elastic import Elastic
from volary.consistency.ssp import Ssp
from volary.driver.watching.failure_detector import FailureDetector
from volary.server.client.client import Client
from volary.server.protocol.header import MessageKind
from volary.server.protocol.to_members import LEFT, End
from volary.server.protocol.updates import Contribution
from volary.server.roster.gradient_norms import GradientNorms
from volary.server.roster.replica_ranks import ReplicaRanks
from volary.server.roster.roster import Roster
from volary.server.shards.actions import Apply
from volary.server.shards.shard import Shard
from volary.train.served.residuals import Residuals

WITHIN = 400  # schedules


class SspLeadsTooFar(Ssp):
    def closer(self, workers, first=0, samples=0):
        return BoundedCloser(first, self.staleness + 1)


class OneOlder(SynchronousCloser):
    def oldest(self, clock):
        return max(0, clock - 1)


class BspReadsTooOld(Bsp):
    def closer(self, workers, first=0, samples=0):
        return OneOlder(first, early=True)


class WhateverIsThere(BoundedCloser):
    def oldest(self, clock):
        return 0


class SspReadsWhateverIsThere(Ssp):
    def closer(self, workers, first=0, samples=0):
        return WhateverIsThere(first, self.staleness) if self.staleness else super().closer(workers, first, samples)


class OfAnyAge(InTurnCloser):
    def oldest(self, clock):
        return 0


class ElasticReadsWhateverIsThere(Elastic):
    def closer(self, workers, first=0, samples=0):
        return OfAnyAge(first)


class ClosesBeforeHeld(Ssp):
    def closer(self, workers, first=0, samples=0):
        return SynchronousCloser(first, early=True)


class HeldByOne(Client):
    def _settle(self, push):
        if push.held_by:
            push.held_by.update(self._servers(push.header.slice))
        return super()._settle(push)


class ForgetsWhatWasOnItsWay(Client):
    def connected(self, server):
        pushes, self._pushes = self._pushes, {}
        actions = super().connected(server)
        self._pushes = pushes
        return actions


class AppliesTwice(Shard):
    def close(self, closing):
        return [doubled(action) for action in super().close(closing)]


class AppliesDuplicates(Shard):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.again = set()

    def arrived(self, peer, header):
        if header.kind == MessageKind.PUSH and not self.wants(peer, header):
            self.again.add(Contribution(header.worker, header.clock))
        return self.noticed(super().arrived(peer, header))

    def close(self, closing):
        return self.noticed(super().close(closing))

    def noticed(self, actions):
        return [doubled(one) if self.again & {*getattr(one, "contributions", ())} else one for one in actions]


class DoesNotWait(Shard):
    def close(self, closing):
        here = [each for each in closing.contributions if all(each in one.held for one in self._slices.values())]
        return super().close(msgspec.structs.replace(closing, contributions=tuple(here)))


class Overtakes(Shard):
    """An update that comes while another is applied lets the next one pass, if it comes in time."""

    waits = None

    def close(self, closing):
        if self.waits is None:
            if not any(one.busy for one in self._slices.values()):
                return super().close(closing)
            self.waits = closing
            return []
        before, self.waits = self.waits, None
        numbered = msgspec.structs.replace
        passes = super().close(numbered(closing, number=before.number))
        return [*passes, *super().close(numbered(before, number=closing.number))]

    def applied(self, number, update):
        actions = super().applied(number, update)
        if self.waits is not None and not any(one.busy for one in self._slices.values()):
            closing, self.waits = self.waits, None
            actions += super().close(closing)
        return actions


class ClipsByItsOwnNorm(Shard):
    """Whatever the others have found."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.own = {}

    def measured(self, number, update, norm):
        self.own[update] = self.own.get(update, 0.0) + norm
        return super().measured(number, update, norm)

    def clip(self, update, factor):
        return super().clip(update, min(1.0, 5.0 / self.own.get(update, 5.0)))


class CountsACopyTwice(GradientNorms):
    def measured(self, server, said):
        twice = {shard: 2.0 * norm if shard != server else norm for shard, norm in said.norms.items()}
        super().measured(server, msgspec.structs.replace(said, norms=twice))


class MeasuresCopiesTwice(Roster):
    def _begin(self, now):
        super()._begin(now)
        if self._progress is not None and not isinstance(self._progress.norms, CountsACopyTwice):
            self._progress.norms = CountsACopyTwice(self._outgoing, self._replicas)


class KeepsTooLate(Shard):
    def keep(self, snapshot, number):
        return super().keep(snapshot, number + (self.oldest < number))


class OfNow(Residuals):
    def _as_of(self, clock):
        return self._newest


class ForgetsTooMuch(Residuals):
    def _forget(self):
        self._after.clear()


class ForgetsLeases(Roster):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._gone, self._attendance.worker_gone = self._attendance.worker_gone, self._forget

    def _forget(self, rank, kind, reason, now):
        if self._progress is not None:
            for task in self._progress.work.tasks(rank):
                self._progress.work.portions.used(task.portions)
        self._gone(rank, kind, reason, now)


class CountsOnlyWhoIsHere(Roster):
    def expect(self, rank):
        pass


class AloneOnceOthersHaveLeft(FailureDetector):
    def _is_alone(self, worker):
        return all(one is worker or one.goodbye or one.dismissed for one in self.workers.values())


class DoneOnceTheFirstRankIs(ReplicaRanks):
    def received(self, peer, message, now):
        replica = self._replica.get(peer)
        if message.get("kind") != "done" or replica not in self._peers:
            return super().received(peer, message, now)
        return self._to_all(self._roster.received(peer, message, now) if peer == self._peers[replica][0] else ())


class LetsOneRankGo(ReplicaRanks):
    def _to_all(self, replies):
        firsts = {peers[0] for peers in self._peers.values()}
        told = super()._to_all(replies)
        return [(peer, one) for peer, one in told if one != End(LEFT) or peer in firsts]


@dataclass(frozen=True)
class Mistake:
    model: str
    change: dict

    def applied_to(self, case):
        change = dict(self.change)
        if kind := change.pop("kind", None):
            settings = {"staleness": case.model.staleness} if issubclass(kind, Ssp) else {}
            change["model"] = kind(**settings)
        return replace(case, **change)


MISTAKES = {
    "ssp lets workers lead by a step too many": Mistake("ssp", {"kind": SspLeadsTooFar}),
    "ssp reads whatever is there": Mistake("ssp", {"kind": SspReadsWhateverIsThere}),
    "elastic pulls a centre without its last pull": Mistake("elastic", {"kind": ElasticReadsWhateverIsThere}),
    "bsp reads a step too old": Mistake("bsp", {"kind": BspReadsTooOld}),
    "an update is announced before it is held": Mistake("ssp", {"kind": ClosesBeforeHeld}),
    "held once the first replica says so": Mistake("async", {"client": HeldByOne}),
    "pushes are not repeated over a new connection": Mistake("async", {"client": ForgetsWhatWasOnItsWay}),
    "a closing is applied twice": Mistake("ssp", {"shard": AppliesTwice}),
    "a push that is repeated counts twice": Mistake("ssp", {"shard": AppliesDuplicates}),
    "a closing is applied without what is not here": Mistake("bsp", {"shard": DoesNotWait}),
    "a closing overtakes one that waits": Mistake("async", {"shard": Overtakes}),
    "a server clips by its own norm": Mistake("bsp", {"shard": ClipsByItsOwnNorm}),
    "the norm of a slice's copy counts, too": Mistake("bsp", {"roster": MeasuresCopiesTwice}),
    "a snapshot is kept an update too late": Mistake("async", {"shard": KeepsTooLate}),
    "residuals are those of now": Mistake("async", {"residuals": OfNow}),
    "residuals as of a state are forgotten": Mistake("async", {"residuals": ForgetsTooMuch}),
    "what a dead worker had begun is forgotten": Mistake("async", {"roster": ForgetsLeases}),
    "who was let in and is starting is not counted": Mistake("ssp", {"roster": CountsOnlyWhoIsHere}),
    "a contribution is done once the first rank of its replica is": Mistake("cut", {"members": DoneOnceTheFirstRankIs}),
    "one rank of a replica alone is told that it leaves": Mistake("cut", {"members": LetsOneRankGo}),
    "a stopped worker that all others have left is waited for": Mistake("backup", {"watch": AloneOnceOthersHaveLeft}),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake):
    assert any(is_found(MISTAKES[mistake], seed) for seed in range(WITHIN)), f"not in {WITHIN} schedules"


def is_found(mistake, seed):
    case, keeps = MODELS[mistake.model](Random(seed))
    run = Run(mistake.applied_to(case), seed)
    try:
        run.play()
        keeps_what_all_promise(run)
        keeps(run)
    except (AssertionError, KeyError):
        return True
    return False


def doubled(action):
    return replace(action, contributions=2 * action.contributions) if isinstance(action, Apply) else action
