"""Each consistency model as a seed may set it, what befalls its runs, and what they promise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from importlib import import_module
from math import inf
from random import Random
from typing import Any, TypeAlias

from simulation import _promises as promise
from simulation._faults import BORNE_S, EVER, Faults
from simulation._run import Case, Run
from volary.consistency._base import Consistency
from volary.consistency.backup import Backup
from volary.consistency.bsp import Bsp
from volary.consistency.elastic import Elastic
from volary.consistency.hogwild import Hogwild
from volary.consistency.local import LocalSgd
from volary.consistency.portions import PortionsOfBatch
from volary.consistency.ssp import Ssp
from volary.server.protocol.norms import ClipNorm

Async = import_module("volary.consistency.async").Async

Keeps: TypeAlias = Callable[[Run], None]  # raises AssertionError


def bsp(random: Random) -> tuple[Case, Keeps]:
    """Workers stay; connections and one of two replicas do not."""
    replicas = random.choice((1, 2))
    case = Case(model=Bsp(), befall=_troubled, replicas=replicas, share_not_finite=0.1, **_clips(random, 0.6))

    def keeps(run: Run) -> None:
        promise.reads_see(run.history, 0, exactly=True)
        _is_clipped(run)

    return case, keeps


def local(random: Random) -> tuple[Case, Keeps]:
    """As bsp; a contribution is of a period's portions. With a quorum all may happen, and nothing is dropped."""
    period = random.randint(1, 4)
    if random.random() < 0.4:
        return _in_rounds(random, period)
    grows = {"after": random.randrange(4), "doubles": random.randint(1, 4), "most": random.randint(period, 8)}
    return _in_step(random, LocalSgd(period=period, **random.choice(({}, grows))))


def hogwild(random: Random) -> tuple[Case, Keeps]:
    """As local: a worker's threads are no matter of its messages."""
    return _in_step(random, Hogwild(threads=2, period=random.randint(1, 4)))


def ssp(random: Random) -> tuple[Case, Keeps]:
    """All may happen."""
    staleness = random.randrange(4)
    case = Case(model=Ssp(staleness=staleness), befall=_deadly, replicas=random.choice((1, 2)))

    def keeps(run: Run) -> None:
        promise.reads_see(run.history, staleness, exactly=staleness == 0)
        promise.waits_only_beyond(run.history, staleness)

    return case, keeps


def backup(random: Random) -> tuple[Case, Keeps]:
    """All may happen, to both forms."""
    replicas = random.choice((1, 2))
    if random.random() < 0.3:
        model = Backup(epoch=random.choice((0.5, 0.75, 1.0)))
        return Case(model=model, befall=_deadly, replicas=replicas), lambda run: None
    workers = random.randint(2, 3)
    k = random.randint(1, workers)
    model = Backup(k=k, deadline=random.choice((None, "auto", 0.05)))

    def keeps(run: Run) -> None:
        promise.closes_with(run.history, k)
        promise.dropped_are_counted(run.history)
        promise.reads_see(run.history, 0)
        _is_clipped(run)

    return Case(model=model, workers=workers, befall=_deadly, replicas=replicas, **_clips(random, 0.25)), keeps


def asynchronous(random: Random) -> tuple[Case, Keeps]:
    """All may happen."""
    push_every, warm_up = random.randint(1, 3), random.choice((0, 6))
    model = Async(push_every=push_every, fetch_every=random.randint(1, 3), warm_up_samples=warm_up)

    def keeps(run: Run) -> None:
        promise.contributions_are(run.history, push_every)
        promise.one_learns_until(run.history, warm_up)

    return Case(model=model, befall=_deadly, replicas=random.choice((1, 2))), keeps


def elastic(random: Random) -> tuple[Case, Keeps]:
    """All may happen; a contribution is of a period's portions."""
    period = random.randint(1, 3)

    def keeps(run: Run) -> None:
        promise.contributions_are(run.history, period)
        promise.reads_see_their_own(run.history)

    return Case(model=Elastic(period=period), befall=_deadly, replicas=random.choice((1, 2))), keeps


def portions(random: Random) -> tuple[Case, Keeps]:
    """All may happen."""
    model = PortionsOfBatch(count=random.randint(1, 6), copies=random.random() < 0.8)

    def keeps(run: Run) -> None:
        promise.updates_are_of_whole_batches(run.history, run.samples, run.batch_size)
        promise.reads_see_all_before(run.history)
        promise.dropped_are_counted(run.history, of_gone=True)
        _is_clipped(run)

    return Case(model=model, befall=_deadly, replicas=random.choice((1, 2)), **_clips(random, 0.25)), keeps


def cut(random: Random) -> tuple[Case, Keeps]:
    """Replicas that two or three ranks hold, under the models that they can have: all may happen, but that any join."""
    staleness = random.randrange(3)
    model = random.choice((Bsp(), Ssp(staleness=staleness), Async(push_every=random.randint(1, 2))))
    befall = _part_by_part if model.elastic else _troubled
    case = Case(model=model, befall=befall, replicas=random.choice((1, 2)), each=random.choice((2, 3)))

    def keeps(run: Run) -> None:
        if isinstance(model, Bsp | Ssp):
            promise.reads_see(run.history, 0 if isinstance(model, Bsp) else staleness)
        promise.replicas_are_whole(run.workers.values())

    return case, keeps


MODELS = {"bsp": bsp, "local": local, "backup": backup, "ssp": ssp, "async": asynchronous, "elastic": elastic}
MODELS |= {"portions": portions, "hogwild": hogwild, "cut": cut}


def keeps_what_all_promise(run: Run, learnt_before: Counter[tuple[int, int]] | None = None) -> None:
    """To be asked after a run that has finished. learnt_before: what it was resumed with."""
    history = run.history
    assert run.roster.outcome == "finished", run.failure
    promise.one_sequence(history)
    promise.nothing_acknowledged_is_lost(history)
    if run.habits.hello.residuals:
        promise.residuals_are_of_the_state(history)
    promise.each_sample_once(history.samples() + (learnt_before or Counter()), run.samples, run.case.epochs)
    promise.checkpoints_are_whole(history, len(run.slices))
    promise.replicas_agree(history, run.final())
    promise.the_end_is_saved(history)


def _in_step(random: Random, model: Consistency) -> tuple[Case, Keeps]:
    case = Case(model=model, befall=_troubled, replicas=random.choice((1, 2)), share_not_finite=0.1)

    def keeps(run: Run) -> None:
        promise.reads_see(run.history, 0, exactly=True)
        promise.periods_are(run.history, model, run.steps_before)

    return case, keeps


def _in_rounds(random: Random, period: int) -> tuple[Case, Keeps]:
    workers = random.randint(2, 3)
    model = LocalSgd(period=period, quorum=random.randint(1, workers), grace=random.choice((0.0, 0.2, 1.0)))

    def keeps(run: Run) -> None:
        promise.contributions_are(run.history, period)
        promise.reads_see_their_own(run.history, but=1)
        assert not run.history.dropped

    return Case(model=model, workers=workers, befall=_deadly, replicas=random.choice((1, 2))), keeps


def _clips(random: Random, share: float) -> dict[str, Any]:
    """By the norm of all, in this share of the cases: as the session says, or as the workers' loops do."""
    if random.random() >= share:
        return {}
    of_session = {"clip": random.choice((ClipNorm(5.0), ClipNorm(1e9)))}
    of_loops = {"clip": random.choice((ClipNorm(5.0), ClipNorm(2.0, inf))), "loops_clip": True}
    return random.choice((of_session, of_loops))


def _is_clipped(run: Run) -> None:
    if (clip := run.case.clip) is not None:
        servers = [server.factors for server in run.servers.values()]
        promise.clipped_by_the_norm_of_all(run.history, clip, len(run.slices), servers, run.case.loops_clip)


def _troubled(faults: Faults) -> None:
    faults.connections_break(4)
    faults.partitions(2)
    faults.pauses(2, 0.6)
    faults.pauses_at_the_end(2, 0.3, BORNE_S)
    if faults.replicated:
        faults.a_server_dies()


def _part_by_part(faults: Faults) -> None:
    _troubled(faults)
    faults.pauses(1, 3.0)
    faults.workers_die(2)
    faults.workers_leave(2)


def _deadly(faults: Faults) -> None:
    _troubled(faults)
    faults.pauses(1, 3.0)
    faults.pauses_at_the_end(2, 0.3, 3.0, EVER)
    faults.workers_die(2)
    faults.workers_leave(1)
    faults.workers_join(2)
    faults.all_die_but_one_that_is_starting()
