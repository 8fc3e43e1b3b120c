"""Every sample of an epoch is learnt from once, whoever comes, goes, is slow or is dropped."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from volary.server.protocol.updates import Portion
from volary.server.roster.portions import PortionPlan, Portions, RemainingSamples
from volary.sharding.epochs import Epochs


def plan(samples: int, batch_size: int, epochs: int = 1, **more) -> PortionPlan:
    return PortionPlan(epochs=Epochs(samples, batch_size), limit=epochs * samples, **more)


def dealt(portions: Portions, worker: int) -> Portion | None:
    taken = portions.take(worker)
    return taken.portion if taken else None


def count(seen: Counter[tuple[int, int]], portion: Portion) -> None:
    seen.update((portion.epoch, sample) for sample in range(portion.start, portion.end))


class Crew:
    """Workers that take, finish, drop, come and go at random."""

    def __init__(self, portions: Portions, workers: int, seen: Counter[tuple[int, int]]) -> None:
        self.portions, self.seen = portions, seen
        self.begun: dict[int, list[Portion]] = {}
        for worker in range(workers):
            self.come(worker)

    def come(self, worker: int) -> None:
        self.begun[worker] = []
        self.portions.join(worker)

    def go(self, worker: int) -> None:
        self.portions.again(self.begun.pop(worker))
        self.portions.leave(worker)

    def take(self, worker: int) -> bool:
        portion = dealt(self.portions, worker)
        if portion is not None:
            self.begun[worker].append(portion)
        return portion is not None

    def finish(self, worker: int, *, drop: bool) -> None:
        if self.begun[worker]:
            portion = self.begun[worker].pop(0)
            if drop:
                self.portions.again([portion])
            else:
                count(self.seen, portion)
                self.portions.used([portion])

    def act(self, choice: int, which: int) -> None:
        worker = sorted(self.begun)[which % len(self.begun)]
        if choice < 6:
            self.take(worker)
        elif choice < 10:
            self.finish(worker, drop=choice == 9)
        elif choice == 10:
            self.come(max(self.begun) + 1)
        elif len(self.begun) > 1:
            self.go(worker)

    def finish_all(self) -> None:
        moved = True
        while moved:
            moved = False
            for worker in list(self.begun):
                moved = self.take(worker) or bool(self.begun[worker]) or moved
                self.finish(worker, drop=False)


PLANS = st.builds(
    lambda samples, size, epochs, part, form: PortionPlan(
        epochs=Epochs(samples, size),
        limit=max(1, samples * epochs - part % samples),
        steals=form == 0,
        epoch_share=0.75 if form == 2 else None,
    ),
    st.integers(1, 60),
    st.integers(1, 20),
    st.integers(1, 3),
    st.integers(0, 60),
    st.integers(0, 2),
)
ACTS = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 100)), max_size=120)


@settings(max_examples=250, deadline=None)
@given(PLANS, st.integers(1, 5), ACTS, ACTS, st.integers(1, 5))
def test_every_sample_is_used_exactly_once_also_across_a_resume_with_other_workers(how, workers, before, after, others):
    seen: Counter[tuple[int, int]] = Counter()
    crew = Crew(Portions(how), workers, seen)
    for act in before:
        crew.act(*act)
    resumed = Crew(Portions(how, crew.portions.left()), others, seen)
    for act in after:
        resumed.act(*act)
    resumed.finish_all()
    epochs = -(-how.limit // how.epochs.samples)
    every = [(epoch, sample) for epoch in range(epochs) for sample in range(how.epochs.samples)]
    assert seen == Counter(every[: how.limit])
    assert resumed.portions.exhausted
    left = [(epoch, n) for epoch, start, end in resumed.portions.left().ranges for n in range(start, end)]
    assert left == every[how.limit :], "what is beyond the end waits for a run that is resumed to be longer"


@given(st.integers(1, 100), st.integers(1, 20), st.integers(1, 6))
def test_workers_that_keep_step_have_a_part_of_every_batch_that_make_it_up(samples, size, workers):
    portions = Portions(plan(samples, size, steals=False))
    for worker in range(workers):
        portions.join(worker)
    for first in range(0, samples, size):
        dealt_out = [dealt(portions, worker) for worker in range(workers)]
        assert all(first <= part.start < samples for part in dealt_out)
        parts = [part for part in dealt_out if part.start < part.end]
        assert [part.start for part in parts] == [first, *(part.end for part in parts[:-1])]
        assert parts[-1].end == min(first + size, samples)
        lengths = [part.end - part.start for part in parts]
        assert max(lengths) - min(lengths) <= 1
        if size >= 2 * workers and sum(lengths) > 1:
            assert min(lengths) > 1, "batch norm refuses a single sample"


def test_a_worker_without_work_takes_over_from_the_one_that_has_most():
    portions = Portions(plan(40, 4, epochs=1))
    for worker in (0, 1):
        portions.join(worker)
    for _ in range(10):
        dealt(portions, 0)
    taken = portions.take(0)
    assert taken.victim == 1
    assert taken.portion.start == 38  # its last one, which it would begin last


def test_the_last_portion_is_left_to_its_owner_while_there_is_more_to_deal():
    portions = Portions(plan(8, 4, epochs=2))
    for worker in (0, 1):
        portions.join(worker)
    assert [dealt(portions, 0).epoch for _ in range(2)] == [0, 0]
    dealt(portions, 1)
    assert portions.take(0).portion.epoch == 1


def test_what_was_dropped_comes_before_all_else():
    portions = Portions(plan(40, 4))
    for worker in (0, 1):
        portions.join(worker)
    late = dealt(portions, 1)
    portions.again([late])
    assert dealt(portions, 0) == late


def test_an_epoch_ends_once_its_share_of_workers_has_finished_and_the_rest_comes_first_in_the_next():
    portions = Portions(plan(16, 4, epochs=2, steals=False, epoch_share=0.75))
    for worker in range(4):
        portions.join(worker)
    slow = dealt(portions, 3)
    for worker in (0, 1, 2):
        for _ in range(4):
            portions.used([dealt(portions, worker)])
            if worker < 2:
                assert portions.left_over == 0
    assert portions.take(0).portion.epoch == 0  # what worker 3 had not begun
    assert portions.left_over == 3
    portions.used([slow])
    assert {dealt(portions, worker).epoch for worker in (1, 2)} == {0}
    assert dealt(portions, 3).epoch == 1


def test_who_has_finished_its_part_waits_for_the_end_of_the_epoch():
    portions = Portions(plan(16, 4, epochs=2, steals=False, epoch_share=1.0))
    for worker in (0, 1):
        portions.join(worker)
    while portion := dealt(portions, 0):
        portions.used([portion])
    assert not portions.offers(0)
    assert portions.offers(1)


@given(st.integers(1, 50), st.integers(1, 20), st.integers(0, 30))
def test_steps_and_samples_translate_into_each_other(samples, size, steps):
    assert Epochs(samples, size).steps_of(Epochs(samples, size).samples_of(steps)) == steps


def test_what_a_checkpoint_keeps_is_short():
    portions = Portions(plan(100_000, 10))
    portions.join(0)
    portions.join(1)
    given_out = [dealt(portions, worker) for worker in (0, 1) for _ in range(50)]
    portions.used(given_out)
    assert portions.left() == RemainingSamples(1, [(0, 500, 100_000)])


def test_what_is_left_of_an_epoch_is_dealt_up_to_the_runs_limit():
    portions = Portions(PortionPlan(epochs=Epochs(40, 10), limit=65), RemainingSamples(2, [(1, 20, 40)]))
    portions.join(0)
    first = dealt(portions, 0)
    assert (first.epoch, first.start, first.end) == (1, 20, 25)
    assert portions.exhausted
    assert Portions(PortionPlan(epochs=Epochs(40, 10), limit=60), RemainingSamples(2, [(1, 20, 40)])).exhausted
