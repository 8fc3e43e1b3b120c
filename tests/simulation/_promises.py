"""Promises of every run, and of every run of a model: each takes a history and fails with what was broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import groupby
from math import isclose

from simulation._history import History, Value
from simulation._server import slice_norm
from simulation._worker import Worker
from volary.consistency._base import Consistency
from volary.server.protocol.norms import ClipNorm, combined
from volary.server.protocol.to_members import LEFT
from volary.server.protocol.updates import Contribution


class Broken(AssertionError):
    """A promise was."""


def _keep(kept: bool, promise: str) -> None:
    if not kept:
        raise Broken(promise)


def one_sequence(history: History) -> None:
    """All slices, wherever and by whomever they are seen, are the sum of the announced updates, in order, once each."""
    values = history.as_of()
    for read in history.reads:
        for number, (version, value) in read.slices.items():
            expected = values[version - history.first]
            _keep(value == expected, f"{read} has slice {number} not as of update {version}: {expected}")
    for snapshot, seen in history.snapshots.items():
        expected = values[history.numbers[snapshot] - history.first]
        _keep(
            all(value == expected for _, value in seen),
            f"snapshot {snapshot} is not as of one update: {seen}, not {expected}",
        )


def checkpoints_are_whole(history: History, slices: int) -> None:
    """Each has all slices, as of the update that its roster's state speaks of."""
    values = history.as_of()
    for saved in history.saved:
        expected = values[saved.state["closings"] - history.first]
        _keep(len(saved.values) == slices, f"checkpoint {saved.step} has only slices {sorted(saved.values)}")
        _keep(all(value == expected for value in saved.values.values()), f"{saved} is not as of its update: {expected}")


def residuals_are_of_the_state(history: History) -> None:
    """A checkpoint has every worker's: of all its contributions in that state, and of none that is newer.

    One that came too late for its update may be among them. Those of all who stay are there.
    """
    for saved in history.saved:
        done = [closing for closing in history.closings if closing.number <= saved.state["closings"]]
        used, settled = dict[int, int](), dict[int, int]()
        for one in (each for closing in done for each in closing.contributions):
            used[one.worker] = max(used.get(one.worker, -1), one.clock)
        for one in (each for closing in done for each in (*closing.contributions, *closing.dropped)):
            settled[one.worker] = max(settled.get(one.worker, -1), one.clock)
        _keep(history.stayed & used.keys() <= saved.residuals.keys(), f"{saved} lacks residuals of a worker")
        for rank, value in saved.residuals.items():
            encoded = history.encoded.get(rank, ())
            least, most = (sum(one.clock <= newest.get(rank, -1) for one in encoded) for newest in (used, settled))
            _keep(
                value == encoded[: len(value)] and least <= len(value) <= most,
                f"residuals of rank {rank} in {saved} are not those of the first {least} to {most} of {encoded}",
            )


def the_end_is_saved(history: History) -> None:
    """The run can be resumed from its checkpoint."""
    if history.closings:
        closings = history.newest_checkpoint.state["closings"]
        _keep(closings == history.newest, f"the last checkpoint is as of {closings}, not {history.newest}")


def nothing_acknowledged_is_lost(history: History) -> None:
    """A contribution that a live worker knows to be held is in an update, unless it was too late or adds nothing."""
    used = Counter(history.used())
    _keep(all(often == 1 for often in used.values()), f"used more than once: {used}")
    lost = {
        each
        for each in history.acknowledged - used.keys() - history.dropped - history.not_finite
        if each.worker in history.stayed
    }
    _keep(not lost, f"acknowledged, and in no update: {lost}")


def each_sample_once(often: Counter[tuple[int, int]], samples: int, epochs: int) -> None:
    """Over finished epochs each sample is learnt from in exactly one update. often: see `History.samples`."""
    every = {(epoch, sample) for epoch in range(epochs) for sample in range(samples)}
    _keep(often.keys() <= every, f"samples that there are not: {often.keys() - every}")
    _keep(every <= often.keys(), f"never learnt from: {sorted(every - often.keys())}")
    _keep(max(often.values()) == 1, f"learnt from more than once: {often.most_common(5)}")


def reads_see(history: History, staleness: int, *, exactly: bool = False) -> None:
    """A read at a clock sees every update's contributions of `staleness` clocks before; exactly: and no others."""
    used = sorted(history.used(), key=lambda each: each.clock)
    for read in history.reads:
        must = {each for each in used if each.clock < read.clock - staleness}
        for number, (_, value) in read.slices.items():
            seen = {*value[len(history.began) :]}
            _keep(must <= seen, f"{read} does not see {must - seen} in slice {number}")
            _keep(not exactly or must == seen, f"{read} sees more than it may: {seen - must}")


def reads_see_their_own(history: History, but: int = 0) -> None:
    """A read sees what its worker has contributed before, but for so many, the last ones, and what is in no update."""
    used = [*history.used()]
    for read in history.reads:
        must = {each for each in used if each.worker == read.worker and each.clock < read.clock - but}
        for number, (_, value) in read.slices.items():
            _keep(must <= {*value}, f"{read} does not see {must - {*value}} in slice {number}")


def waits_only_beyond(history: History, staleness: int) -> None:
    """Whoever waits does so for an update that is on its way, or somebody is more than `staleness` clocks behind it."""
    for wait in history.waits:
        on_its_way = wait.closed >= wait.needed
        _keep(on_its_way or wait.clock - wait.behind > staleness, f"{wait}, and nobody is that far behind")


def updates_are_of_whole_batches(history: History, samples: int, batch_size: int) -> None:
    """Each is of all samples of one batch, each once, in their order, but for those whose loss was no number."""
    for closing in history.closings:
        left_out = [each for each in closing.dropped if each in history.not_finite]
        portions = [portion for each in (*closing.contributions, *left_out) for portion in history.learnt[each]]
        found = sorted(sample for one in portions for sample in range(one.start, one.end))
        first = found[0] // batch_size * batch_size
        batch = [*range(first, min(first + batch_size, samples))]
        _keep(found == batch, f"{closing} is of samples {found}, and its batch of {batch}")
        starts = [history.learnt[each][0].start for each in closing.contributions]
        _keep(starts == sorted(starts), f"{closing} adds up portions as they came: {starts}")


def reads_see_all_before(history: History) -> None:
    """A contribution in an update was computed with the update before it, and nothing else."""
    values = history.as_of()
    number = {each: closing.number for closing in history.closings for each in closing.contributions}
    for read in history.reads:
        if (update := number.get(Contribution(read.worker, read.clock))) is not None:
            expected = values[update - 1 - history.first]
            _keep(all(value == expected for _, value in read.slices.values()), f"{read} is in {update}, not {expected}")


def closes_with(history: History, k: int) -> None:
    """No update has more contributions than it waits for, and all of one clock."""
    sizes = [len(closing.contributions) for closing in history.closings]
    _keep(max(sizes, default=0) <= k, f"updates of {sizes} contributions, where {k} are enough")
    clocks = [{each.clock for each in closing.contributions} for closing in history.closings]
    _keep(all(len(each) <= 1 for each in clocks), f"an update is of more than one clock: {clocks}")


def dropped_are_counted(history: History, *, of_gone: bool = False) -> None:
    """Whoever looks at the run sees how many there were. of_gone: some may be of workers that are gone by then."""
    counted, told = history.counts["dropped"], len(history.dropped)
    _keep(
        counted == told or (of_gone and counted > told),
        f"{counted} are counted as dropped, workers were notified of {told}",
    )


def one_learns_until(history: History, samples: int) -> None:
    """Before so many samples are learnt from, all that is learnt is one worker's; another's if that one has gone."""
    warm = [each.worker for closing in history.closings if closing.samples <= samples for each in closing.contributions]
    turns = [worker for worker, _ in groupby(warm)]
    _keep(history.stayed.isdisjoint(turns[:-1]), f"in the warm-up learnt workers {turns}")
    _keep(len(turns) == len({*turns}), f"in the warm-up learnt workers {turns}")


def contributions_are(history: History, push_every: int) -> None:
    """None is of more portions."""
    _keep(max(map(len, history.learnt.values()), default=0) <= push_every, "more portions than that were pushed as one")


def periods_are(history: History, model: Consistency, begun: int) -> None:
    """Each is as long as the model says of the steps before it, on all workers; the last may be cut short.

    begun: steps before the first.
    """
    lengths: dict[int, set[int]] = {}
    for contribution, learnt in history.learnt.items():
        lengths.setdefault(contribution.clock, set()).add(len(learnt))
    for clock in sorted(lengths):
        expected = model.steps(begun=begun)
        found = lengths[clock]
        _keep(max(found) <= expected, f"the period after {begun} steps has {max(found)}, not {expected}")
        _keep(found == {expected} or clock == max(lengths), f"the period after {begun} steps is of {found}")
        begun += expected


def replicas_agree(history: History, servers: list[dict[int, Value]]) -> None:
    """All that each server has at the end is as of the last update."""
    expected = history.as_of()[-1]
    for values in servers:
        _keep(all(value == expected for value in values.values()), f"at the end {values}, not {expected}")


def clipped_by_the_norm_of_all(
    history: History, clip: ClipNorm, slices: int, servers: Iterable[Mapping[tuple[int, int], float]], told: bool
) -> None:
    """Every server has multiplied its slices of an update by the factor that follows from the norm of all of them.

    servers: of each, also of those that are gone, the factors by update and slice. told: to each contribution's worker.
    """
    norms = {
        each.number: combined((slice_norm(n, len(each.contributions), each.scale) for n in range(slices)), clip.kind)
        for each in history.closings
        if each.contributions
    }
    for factors in servers:
        for (update, number), factor in factors.items():
            expected = clip.factor(norms[update])
            _keep(
                isclose(factor, expected), f"update {update} of slice {number} is clipped by {factor}, not {expected}"
            )
    for closing in history.closings:
        for one in closing.contributions if told else ():
            answered = one.worker not in history.stayed or isclose(history.norms.get(one, 0.0), norms[closing.number])
            _keep(answered, f"{one} is told the norm {history.norms.get(one)}, not {norms[closing.number]}")


def replicas_are_whole(workers: Iterable[Worker]) -> None:
    """The ranks that hold a replica stay or go together, but for those that are killed, or never go on."""
    outcomes: dict[int, set[str]] = {}
    for worker in workers:
        outcomes.setdefault(worker.replica, set()).update(
            [worker.outcome] if worker.process.up and not worker.process.paused else []
        )
    for replica, found in outcomes.items():
        kinds = {"stayed" if one in ("finished", "stopped") else one if one == LEFT else "lost" for one in found}
        _keep(len(kinds) < 2, f"the ranks of replica {replica} ended as {sorted(found)}")
