"""Contributions from their beginning to the update that they are in: who was given what, and how it ended."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isfinite

from volary.comm.control.errors import BadMessage
from volary.server.protocol.from_members import Computed
from volary.server.protocol.norms import ClipNorm
from volary.server.protocol.to_members import Learn
from volary.server.protocol.updates import Closing, Contribution, Portion
from volary.server.roster.batch_portions import BatchGathering, BatchPortions
from volary.server.roster.closing import Closer, DueUpdate
from volary.server.roster.portions import Portions

NOTHING_COUNTED = "no target of a batch counted, as each is ignored: it changed nothing"  # a warning, once in a run

_OTHER_STEPS = "taken more or fewer steps with a batch than other workers have"

Steps = Callable[[float], int]  # portions of a contribution, by the seconds that one takes; 0: nobody knows yet


@dataclass
class Task:
    """A contribution that has begun and is in no update yet. stolen_from: whose portions they were to be.

    again: it learns from those of the one before. lost: samples of it that could not be read. rates: see `Closing`.
    counted, loss, waits, carries: see `Computed`; finite: the loss of what waits is a number. clip: see `Done`.
    """

    contribution: Contribution
    portions: list[Portion]
    stolen_from: list[int]
    began_at: float
    again: bool = False
    computed: bool = False
    done: bool = False
    lost: int = 0
    rates: tuple[float, ...] = ()
    counted: float = 0.0
    loss: float = 0.0
    waits: bool = False
    carries: bool = False
    finite: bool = True
    clip: ClipNorm | None = None

    @property
    def samples(self) -> int:
        """Samples that the contribution learns from."""
        return sum(portion.end - portion.start for portion in self.portions)

    @property
    def adds(self) -> int:
        """Its weight in an update: its samples, or 1 if it has gradients of others alone; 0: nothing."""
        return self.samples or int(self.carries)


@dataclass(frozen=True)
class Closed:
    """An update, and what it means: tasks that came too late for it. empty: samples were read, and nothing counted.

    clip: by the norm of its gradient; asking: contributions whose workers wait for that norm. loss: the mean over what
    counted.
    """

    closing: Closing
    late: Sequence[Task]
    empty: bool = False
    clip: ClipNorm | None = None
    asking: Sequence[Contribution] = ()
    loss: float = 0.0


class WorkScheduler:
    """Gives out contributions, of as many portions as `steps` says (see `ConsistencyModel`), and closes updates.

    number, samples: of the newest update, and learnt from so far. clip: of all updates; None: as workers say.

    Updates are made one by one as they are read from what a method returns, so that in between everything is as of the
    one before; they must be read to the end before the next call. lost: by epoch, samples that could not be read.
    settled: by worker, its newest contribution that is in an update, or in none for ever.
    """

    def __init__(
        self,
        portions: Portions | BatchPortions,
        closer: Closer,
        steps: Callable[[float, int], int],
        number: int = 0,
        samples: int = 0,
        clip: ClipNorm | None = None,
    ) -> None:
        self.portions, self.number, self.samples = portions, number, samples
        self._closer, self._steps, self._clip = closer, steps, clip
        self._gathering = BatchGathering(portions) if isinstance(portions, BatchPortions) else None
        self._tasks: dict[Contribution, Task] = {}
        self._next: dict[int, int] = {}  # by worker, the least clock that has not been given to it
        self._active: set[int] = set()
        self.settled: dict[int, int] = {}
        self._before = portions.plan.epochs.steps_of(samples)  # portions of all contributions before the newest clock
        self._newest = number  # clock that was given
        self._lengths = {number: steps(0.0, self._before)}  # portions of a contribution, by clocks that may be given
        self._step_s: dict[int, float] = {}  # by worker, what a portion took it last
        self._repeated = set[int]()  # open clocks at which workers learn again
        self.lost: dict[int, int] = {}

    @property
    def open(self) -> bool:
        """Whether a contribution has begun and is in no update yet."""
        return bool(self._tasks)

    @property
    def held_by(self) -> tuple[int, ...] | None:
        """While this stays as it is, whoever got nothing from `begin` gets nothing; None: that is not known."""
        plan, clock = self.portions.plan, self._closer.held_by
        if plan.in_step:
            return (self.number,)
        return (
            None
            if clock is None or self._gathering is not None or plan.epoch_share is not None
            else (clock, self.portions.offered)
        )

    def tasks(self, worker: int) -> list[Task]:
        """The worker's open tasks, oldest first."""
        return [task for task in self._tasks.values() if task.contribution.worker == worker]

    def join(self, worker: int) -> None:
        """The worker has a part of the next epoch."""
        self.portions.join(worker)

    def take_part(self, worker: int, now: float) -> None:
        """Let updates wait for this worker, from now on, if they must."""
        if worker not in self._active:
            self._active.add(worker)
            self._closer.joined(worker, now)

    def rest(self, worker: int, now: float) -> Iterator[Closed]:
        """Let no update wait for the worker, which has nothing to do."""
        if worker not in self._active or any(not task.done for task in self.tasks(worker)):
            return iter(())
        self._active.discard(worker)
        return self._close(self._closer.left(worker, now))

    def leave(self, worker: int, now: float) -> Iterator[Closed]:
        """The worker has gone. What is done of it counts; all else comes again."""
        for task in self.tasks(worker):
            if not task.done:
                self._again(task)
        self.portions.leave(worker)
        if worker not in self._active:
            return iter(())
        self._active.discard(worker)
        return self._close(self._closer.left(worker, now))

    def behind(self, worker: int) -> bool:
        """Whether others have begun what this worker has to take part in: a step that all keep, or a whole batch."""
        if self._gathering is not None:
            return self.open
        return self.portions.plan.in_step and self._next.get(worker, 0) < max(self._next.values(), default=0)

    def samples_ahead(self, worker: int) -> int:
        """The samples that the run learns from before the worker's next contribution, as far as that is known."""
        portion = self.portions.next(worker)
        return self._samples_before([] if portion is None else [portion])

    def begin(self, worker: int, now: float) -> Learn | None:
        """The worker's next contribution; None if there is none for it now."""
        if not self.portions.offers(worker, now):
            return None
        self.take_part(worker, now)
        clock = self._closer.next_clock(worker, now)
        if clock is None:
            return None
        there_are = iter(lambda: self.portions.take(worker, now), None)
        taken = list(islice(there_are, min(self._portions_at(clock), sys.maxsize)))
        victims = [each.victim for each in taken if each.victim is not None]
        return self._begun(Task(Contribution(worker, clock), [each.portion for each in taken], victims, now))

    def _begun(self, task: Task) -> Learn:
        worker, clock = task.contribution.worker, task.contribution.clock
        self._tasks[task.contribution] = task
        self._next[worker] = clock + 1
        settled = self.settled.get(worker, -1)
        oldest = self._closer.oldest(clock) if self._gathering is None else self.number
        return Learn(clock, task.portions, self._samples_before(task.portions), oldest, settled)

    def again(self, worker: int, clock: int, now: float) -> list[Learn]:
        """Contribution `clock` is without samples of its own; those that were given for it are of the one after it.

        Raises BadMessage if it is computed or not the newest, or unless all workers do so, who keep step.
        """
        task, after = self._tasks.get(Contribution(worker, clock)), self._next.get(worker, 0)
        if not self.portions.plan.in_step or clock != after - (task is not None) or (task and task.computed):
            raise BadMessage(f"rank {worker} learns again with its contribution {clock}, which has samples of its own")
        if any(one.contribution.clock == clock and one.computed and not one.again for one in self._tasks.values()):
            raise BadMessage(f"rank {worker} has {_OTHER_STEPS}")
        self._repeated.add(clock)
        self.take_part(worker, now)
        next_clock = self._closer.next_clock(worker, now)
        assert next_clock == after, "workers that keep step have all clocks, one after the other"
        repeated = self._begun(Task(Contribution(worker, clock), [], [], now, again=True))
        if task is None:
            return [repeated]
        return [repeated, self._begun(Task(Contribution(worker, next_clock), task.portions, task.stolen_from, now))]

    def _samples_before(self, portions: Sequence[Portion]) -> int:
        """Samples that the run learns from before these: where all keep step, of the batches before, closed or not."""
        plan = self.portions.plan
        if not (plan.in_step and portions):
            return self.samples
        first = portions[0]  # which may come again, when later ones have been learnt from
        batch = plan.epochs.batch_at(first.start)
        return max(self.samples, first.epoch * plan.epochs.samples + batch.start)

    def _portions_at(self, clock: int) -> int:
        """How many make a contribution; the same for all workers that begin this clock, if they keep step."""
        if clock > self._newest:
            mean_s = sum(self._step_s.values()) / len(self._step_s) if self._step_s else 0.0
            self._before += self._lengths[self._newest]
            self._newest, self._lengths[clock] = clock, self._steps(mean_s, self._before)
            self._lengths = {one: length for one, length in self._lengths.items() if one >= min(self.number, clock)}
        newest = self._lengths[self._newest]
        # where all keep step, some may have begun the next clock already, of a period that is longer
        return self._lengths.get(clock, newest) if self.portions.plan.in_step else newest

    def stolen(self, worker: int, clock: int) -> list[int]:
        """The workers from which the contribution's portions were taken over."""
        task = self._tasks.get(Contribution(worker, clock))
        return task.stolen_from if task else []

    def computed(self, worker: int, report: Computed, now: float) -> Iterator[Closed]:
        """Forward is over. Raises BadMessage for a contribution that was never begun, or is told twice."""
        clock, lost, counted = report.clock, report.lost, report.counted
        task = self._task(worker, clock)
        if task is None:
            return iter(())
        if task.computed:
            raise BadMessage(f"rank {worker} computed its contribution {clock} twice")
        if clock in self._repeated and not task.again:
            raise BadMessage(f"rank {worker} has {_OTHER_STEPS}")
        if not 0 <= lost <= task.samples:
            raise BadMessage(f"rank {worker} has lost {lost} samples of its contribution {clock}, of {task.samples}")
        task.counted = task.samples - lost if counted is None else counted
        if not (isfinite(task.counted) and task.counted >= 0):
            raise BadMessage(f"rank {worker} says that {task.counted} of its contribution {clock} counts")
        task.computed, task.rates, task.finite = True, report.rates, report.finite
        task.waits, task.carries, task.loss = report.waits, report.carries, report.loss
        self._lose(task, lost)
        if task.waits:
            return iter(())
        return self._close(self._closer.computed(task.contribution, task.adds, task.finite, now))

    def done(self, worker: int, clock: int, now: float, clip: ClipNorm | None = None) -> Iterator[Closed]:
        """All of it is held. Raises BadMessage for a contribution that was never begun, or is told twice."""
        task = self._task(worker, clock)
        if task is None:
            return iter(())
        if task.done:
            raise BadMessage(f"rank {worker} finished its contribution {clock} twice")
        if task.samples and not task.computed:
            raise BadMessage(f"rank {worker} finished its contribution {clock} before it was computed")
        if clip is not None and not (task.waits and clip.most > 0 and clip.kind > 0):
            raise BadMessage(f"rank {worker} clips its contribution {clock} by {clip}, and did not say so before")
        task.done, task.clip = True, clip
        self._step_s[worker] = (now - task.began_at) / max(1, len(task.portions))
        if task.waits:
            due = self._closer.computed(task.contribution, task.adds, task.finite, now)
            if any(task.contribution in (*each.contributions, *each.left_out, *each.dropped) for each in due):
                return self._close(due)
        return self._close(self._gathered(self._closer.done(task.contribution, task.adds, now), now))

    def tick(self, now: float) -> Iterator[Closed]:
        """Yield what closes because time has passed: `now` in seconds of a monotonic clock."""
        return self._close(self._closer.tick(now))

    def _task(self, worker: int, clock: int) -> Task | None:
        """None: it is in an update already, or in none for ever."""
        if not 0 <= clock < self._next.get(worker, 0):
            raise BadMessage(f"rank {worker} reports on its contribution {clock}, which it has not been given")
        return self._tasks.get(Contribution(worker, clock))

    def _gathered(self, due: Sequence[DueUpdate], now: float) -> Sequence[DueUpdate]:
        """Work that is due by them: where portions of a batch are handed out one by one, nothing before it is whole."""
        if self._gathering is None:
            return due
        return self._gathering.take(due, {one: task.portions for one, task in self._tasks.items()}, now)

    def _close(self, steps: Sequence[DueUpdate]) -> Iterator[Closed]:
        return map(self._close_one, steps)

    def _close_one(self, step: DueUpdate) -> Closed:
        lost = sum(self._tasks[one].lost for one in step.contributions)
        counted = sum(self._tasks[one].counted for one in step.contributions)
        loss = sum(self._tasks[one].loss * self._tasks[one].counted for one in step.contributions) / (counted or 1.0)
        newest = max(step.contributions, key=lambda one: one.clock, default=None)
        self._repeated.difference_update(one.clock for one in (*step.contributions, *step.left_out))
        rates = self._tasks[newest].rates if newest is not None else ()
        clips = {one: clip for one in (*step.contributions, *step.left_out) if (clip := self._tasks[one].clip)}
        clip = self._clip or next(iter(clips.values()), None)
        used = self._settled(step.contributions)
        self._settled(step.left_out)
        for one in (*step.contributions, *step.left_out, *step.dropped):
            self.settled[one.worker] = max(self.settled.get(one.worker, -1), one.clock)
        late = [self._tasks[contribution] for contribution in step.dropped]
        for task in late:
            self._again(task)
        # workers divide by the samples of a batch: what becomes of it is the mean over what counted
        worth = self.portions.plan.epochs.batch_size if step.whole else used
        scale = worth / counted if counted else 1.0
        self.number += 1
        contributions, without = step.contributions, (*step.dropped, *step.left_out)
        if not counted:  # or nothing of it could be read: nothing changes
            contributions, without = (), (*without, *contributions)
            clip = None
        kind = clip.kind if clip else None
        closing = Closing(self.number, contributions, scale, self.samples, without, rates, kind)
        return Closed(closing, late, not counted and lost < used, clip, list(clips), loss)

    def _settled(self, contributions: Iterable[Contribution]) -> int:
        """Their samples are learnt from; returns how many."""
        tasks = [self._tasks.pop(contribution) for contribution in contributions]
        samples = sum(task.samples for task in tasks)
        for task in tasks:
            self.portions.used(task.portions)
        self.samples += samples
        return samples

    def _lose(self, task: Task, lost: int) -> None:
        task.lost += lost
        epoch = task.portions[-1].epoch if task.portions else 0
        self.lost[epoch] = self.lost.get(epoch, 0) + lost

    def _again(self, task: Task) -> None:
        self._lose(task, -task.lost)  # others will
        del self._tasks[task.contribution]
        self.portions.again(task.portions, task.contribution.worker)
