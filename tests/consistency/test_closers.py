"""When contributions make an update, model by model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from volary.consistency import ROOM
from volary.errors import SettingError
from volary.server.protocol.updates import Contribution
from volary.server.roster.closing import Closer


def model(name: str, **settings_of_it):
    return ROOM.load(name)(**settings_of_it)


BY_STEPS = {"bsp": {}, "ssp": {"staleness": 0}, "backup": {}}  # an update is a step's


class Workers:
    """All of one run, each with 8 samples a contribution. steps: what the closer said is due.

    Like a roster they tell nothing more of contributions that are settled.
    """

    def __init__(self, closer: Closer, workers: int) -> None:
        self.closer, self.steps, self.now = closer, [], 0.0
        for worker in range(workers):
            closer.joined(worker, 0.0)

    def begin(self, *workers: int) -> list[Contribution]:
        return [Contribution(worker, self.closer.next_clock(worker, self.now)) for worker in workers]

    def computed(self, *contributions: Contribution, finite: bool = True) -> None:
        for one in self.open(contributions):
            self.steps += self.closer.computed(one, 8, finite, self.now)

    def done(self, *contributions: Contribution, samples: int = 8) -> None:
        for one in self.open(contributions):
            self.steps += self.closer.done(one, samples, self.now)

    def open(self, contributions) -> Iterator[Contribution]:
        for one in contributions:
            if not any(one in (*step.contributions, *step.dropped, *step.left_out) for step in self.steps):
                yield one

    def learn(self, *contributions: Contribution) -> None:
        self.computed(*contributions)
        self.done(*contributions)

    def tick(self, now: float) -> None:
        self.now = now
        self.steps += self.closer.tick(now)

    @property
    def sums(self) -> list[list[int]]:
        """The workers in each update so far."""
        return [[one.worker for one in step.contributions] for step in self.steps]


def test_bsp_closes_a_step_when_the_last_worker_has_computed_it_though_nothing_is_held_yet():
    run = Workers(model("bsp").closer(3), 3)
    a, b, c = run.begin(0, 1, 2)
    run.computed(a, c)
    assert run.steps == []
    run.computed(b)
    assert run.sums == [[0, 1, 2]]


def test_bsp_waits_for_who_has_not_even_begun():
    run = Workers(model("bsp").closer(2), 2)
    run.computed(*run.begin(0))
    assert run.steps == []


@pytest.mark.parametrize("name", ["bsp", "ssp"])
def test_a_step_without_any_useful_contribution_closes_empty_so_that_numbers_stay_in_step(name):
    run = Workers(model(name, **BY_STEPS[name]).closer(2), 2)
    a, b = run.begin(0, 1)
    run.computed(a, finite=False)
    run.done(a)
    run.done(b, samples=0)
    assert run.sums == [[]]
    assert run.steps[0].left_out == (a, b)


def test_ssp_makes_an_update_of_each_contribution_once_it_is_held():
    run = Workers(model("ssp", staleness=2).closer(2), 2)
    (mine,) = run.begin(0)
    run.computed(mine)
    assert run.steps == []
    run.done(mine)
    assert run.sums == [[0]]


def test_ssp_lets_nobody_begin_who_leads_by_more_than_the_staleness():
    run = Workers(model("ssp", staleness=2).closer(2), 2)
    (slow,) = run.begin(1)
    for _ in range(3):
        run.learn(*run.begin(0))
    assert run.closer.next_clock(0, 0.0) is None
    run.learn(slow)
    assert run.closer.next_clock(0, 0.0) == 3
    assert run.closer.oldest(3) == 4  # the slow one's, which came last


def test_ssp_waits_for_nobody_who_has_gone_or_rests():
    run = Workers(model("ssp", staleness=1).closer(2), 2)
    for _ in range(2):
        run.learn(*run.begin(0))
    assert run.closer.next_clock(0, 0.0) is None
    run.closer.left(1, 0.0)
    run.learn(*run.begin(0))
    run.closer.joined(1, 0.0)
    assert run.begin(1) == [Contribution(1, 3)]


@pytest.mark.parametrize("name", ["bsp", "ssp"])
def test_nobody_waits_for_a_worker_that_has_gone_and_what_it_finished_counts(name):
    run = Workers(model(name, **BY_STEPS[name]).closer(2), 2)
    mine, its = run.begin(0, 1)
    run.learn(its)
    run.begin(1)
    run.steps += run.closer.left(1, 0.0)
    run.learn(mine)
    run.learn(*run.begin(0))
    assert run.sums == [[0, 1], [0]]


def test_a_worker_that_joins_begins_with_the_step_that_closes_next():
    run = Workers(model("ssp", staleness=0).closer(1), 1)
    for _ in range(3):
        run.learn(*run.begin(0))
    run.closer.joined(1, 0.0)
    assert run.begin(1) == [Contribution(1, 3)]
    run.learn(*run.begin(0))
    assert len(run.steps) == 3  # the fourth now needs both
    run.learn(Contribution(1, 3))
    assert run.sums[3] == [0, 1]


def test_backup_closes_with_the_first_k_and_drops_the_others():
    run = Workers(model("backup", k=2).closer(3), 3)
    a, b, c = run.begin(0, 1, 2)
    run.learn(a)
    assert run.steps == []
    run.learn(c)
    assert run.steps[0].contributions == (a, c)
    assert run.steps[0].dropped == (b,)
    assert run.begin(1) == [Contribution(1, 1)]


def test_backup_gives_a_step_of_fewer_no_more_weight_than_its_samples_have():
    run = Workers(model("backup", k=2).closer(2), 2)
    a, b = run.begin(0, 1)
    run.learn(a, b)
    (c,) = run.begin(0)
    run.steps += run.closer.left(1, 0.0)
    run.learn(c)
    assert [step.whole for step in run.steps] == [True, False]


def test_backup_by_default_waits_for_all_but_one():
    run = Workers(model("backup").closer(4), 4)
    begun = run.begin(0, 1, 2, 3)
    run.learn(*begun[:2])
    assert run.steps == []
    run.learn(begun[2])
    assert run.sums == [[0, 1, 2]]


def test_backup_does_not_wait_for_more_than_can_come():
    run = Workers(model("backup", k=3).closer(3), 3)
    begun = run.begin(0, 1, 2)
    run.learn(begun[0])
    run.steps += run.closer.left(1, 0.0)
    run.computed(begun[2], finite=False)
    run.done(begun[2])
    assert run.sums == [[0]]


def test_a_deadline_closes_with_what_is_there_but_never_with_nothing():
    run = Workers(model("backup", k=3, deadline=0.5).closer(3), 3)
    begun = run.begin(0, 1, 2)
    run.tick(2.0)
    assert run.steps == []
    run.learn(begun[0])
    assert run.sums == [[0]]
    assert run.steps[0].dropped == tuple(begun[1:])


def test_a_deadline_of_its_own_follows_from_how_long_steps_took():
    run = Workers(model("backup", k=2, deadline="auto").closer(2), 2)
    for step in range(8):
        begun = run.begin(0, 1)
        run.now = step + 0.4
        run.learn(*begun)
        run.now = step + 1.0
    (fast, _) = run.begin(0, 1)
    run.learn(fast)
    run.tick(8.0 + 0.5)
    assert len(run.steps) == 8
    run.tick(8.0 + 0.7)  # 1.5 times 0.4
    assert run.sums[8] == [0]


@pytest.mark.parametrize(("name", "settings_of_it"), [("async", {}), ("backup", {"epoch": 0.75}), ("elastic", {})])
def test_contributions_close_alone_and_count_as_they_are(name, settings_of_it):
    run = Workers(model(name, **settings_of_it).closer(2), 2)
    a, b = run.begin(0, 1)
    run.learn(b)
    run.learn(a)
    assert run.sums == [[1], [0]]
    assert not any(step.whole for step in run.steps)


def test_an_asynchronous_contribution_that_is_not_finite_is_in_no_update():
    run = Workers(model("async").closer(1), 1)
    (one,) = run.begin(0)
    run.computed(one, finite=False)
    run.done(one)
    assert run.sums == [[]]
    assert run.steps[0].left_out == (one,)


def test_in_a_warm_up_one_worker_learns_alone():
    closer = model("async", warm_up_samples=16).closer(2)
    run = Workers(closer, 2)
    assert closer.next_clock(1, 0.0) is None
    run.learn(*run.begin(0))
    assert closer.next_clock(1, 0.0) is None
    run.learn(*run.begin(0))
    assert closer.next_clock(1, 0.0) == 0


def test_a_warm_up_that_is_over_is_not_repeated_by_a_resumed_run():
    closer = model("async", warm_up_samples=16).closer(2, first=7, samples=16)
    closer.joined(0, 0.0)
    closer.joined(1, 0.0)
    assert closer.next_clock(1, 0.0) == 7


def test_if_the_one_that_warms_up_goes_another_takes_its_place():
    closer = model("async", warm_up_samples=16).closer(2)
    run = Workers(closer, 2)
    run.begin(0)
    closer.left(0, 0.0)
    assert closer.next_clock(1, 0.0) == 0


@pytest.mark.parametrize(
    ("name", "settings_of_it", "oldest"),
    [
        ("bsp", {}, [0, 1, 2, 3, 4, 5]),
        ("backup", {}, [0, 1, 2, 3, 4, 5]),
        ("backup", {"epoch": 0.75}, [0, 0, 0, 0, 0, 0]),
        ("ssp", {"staleness": 3}, [0, 0, 0, 0, 2, 4]),  # two updates a clock
        ("ssp", {"staleness": 0}, [0, 1, 2, 3, 4, 5]),
        ("async", {}, [0, 0, 0, 0, 0, 0]),
        ("elastic", {}, [0, 2, 4, 6, 8, 10]),  # of the second worker, whose update is the second of each clock
    ],
)
def test_what_may_be_read_at_a_clock(name, settings_of_it, oldest):
    run = Workers(model(name, **settings_of_it).closer(2), 2)
    found = []
    for clock in range(6):
        begun = run.begin(0, 1)
        found.append(run.closer.oldest(clock))
        run.learn(*begun)
    assert found == oldest


def test_elastic_lets_a_worker_begin_once_its_pull_before_is_an_update_and_waits_for_no_other():
    run = Workers(model("elastic").closer(2), 2)
    (first,) = run.begin(0)
    assert run.closer.next_clock(0, 0.0) is None
    run.begin(1)
    run.learn(first)
    assert run.begin(0) == [Contribution(0, 1)]


def quorum(workers: int, grace: float = 0.0) -> Workers:
    return Workers(model("local", quorum=2, grace=grace).closer(workers), workers)


def test_a_round_closes_with_a_quorum_and_who_comes_later_is_in_the_next_and_goes_on_at_once():
    run = quorum(3)
    a, b, c = run.begin(0, 1, 2)
    run.learn(a)
    assert run.closer.next_clock(0, 0.0) is None  # it waits for the round that it is in
    run.learn(b)
    assert run.sums == [[0, 1]]
    run.begin(0, 1)
    assert run.closer.oldest(1) == 1
    assert run.closer.next_clock(2, 0.0) is None  # it is not done
    run.learn(c)
    assert run.sums == [[0, 1]]
    (c_next,) = run.begin(2)
    run.learn(Contribution(0, 1))
    assert run.sums == [[0, 1], [0, 2]]
    assert run.steps[1].contributions == (Contribution(0, 1), Contribution(2, 0))
    run.learn(c_next)
    assert not any(step.dropped for step in run.steps)
    assert all(step.whole for step in run.steps)


def test_after_the_quorum_a_round_stays_open_for_a_share_of_the_time_that_that_took():
    run = quorum(4, grace=0.5)
    a, b, c, d = run.begin(0, 1, 2, 3)
    run.tick(2.0)
    run.learn(a, b)
    run.tick(2.9)
    run.learn(c)
    assert run.steps == []
    run.tick(3.0)
    assert run.sums == [[0, 1, 2]]
    run.begin(0, 1, 2)
    run.learn(d, Contribution(1, 1))
    assert len(run.steps) == 1
    run.tick(3.4)
    run.learn(Contribution(0, 1))
    assert len(run.steps) == 1
    run.tick(3.5)  # quorums took 2 and 0 seconds: a half of their median
    assert run.sums == [[0, 1, 2], [0, 1, 3]]


def test_a_round_waits_for_no_quorum_that_cannot_be():
    run = quorum(3)
    a, *_ = run.begin(0, 1, 2)
    run.learn(a)
    run.steps += run.closer.left(1, 0.0)
    assert run.sums == []
    run.steps += run.closer.left(2, 0.0)
    assert run.sums == [[0]]
    (a,) = run.begin(0)
    run.computed(a, finite=False)
    run.done(a)
    assert run.sums == [[0], []]
    assert run.steps[1].left_out == (a,)


@pytest.mark.parametrize("name", ["bsp", "ssp", "backup"])
@settings(max_examples=60, deadline=None)
@given(order=st.lists(st.integers(0, 3), max_size=60), workers=st.integers(1, 4))
def test_every_clock_closes_in_order_and_every_contribution_ends_once(name, order, workers):
    """Workers take turns in any order, one contribution each at a time; at last all finish and rest."""
    run = Workers(model(name, **BY_STEPS[name]).closer(workers, first=5), workers)
    begun: dict[int, Contribution] = {}
    all_begun = []

    def turn(worker: int) -> None:
        if worker in begun:
            run.learn(begun.pop(worker))
        else:
            (begun[worker],) = run.begin(worker)
            all_begun.append(begun[worker])

    for worker in order:
        turn(worker % workers)
    for worker in list(begun):
        turn(worker)
    for worker in range(workers):
        run.steps += run.closer.left(worker, 0.0)
    ends = [one for step in run.steps for one in (*step.contributions, *step.dropped, *step.left_out)]
    assert sorted(ends) == sorted(all_begun)
    for number, step in enumerate(run.steps):
        assert {one.clock for one in step.contributions} <= {5 + number}


@pytest.mark.parametrize(
    ("name", "given", "sentence"),
    [
        ("ssp", {"staleness": -1}, "staleness is -1; accepted: a whole number of steps, 0 or more"),
        ("async", {"push_every": 0}, "push_every is 0; accepted: a whole number, 1 or more"),
        ("async", {"fetch_every": 0}, "fetch_every is 0; accepted: a whole number, 1 or more"),
        ("async", {"warm_up_samples": -1}, "warm_up_samples is -1; accepted: a whole number, 0 or more"),
        ("backup", {"k": 0}, "k is 0; accepted: 1 up to the number of workers"),
        ("backup", {"deadline": 0.0}, "deadline is 0; accepted: 'auto', or seconds above 0"),
        ("backup", {"epoch": 1.5}, "epoch is 1.5; accepted: a share of the workers, above 0, up to 1"),
        ("backup", {"epoch": 0.5, "k": 2}, "epoch is given with k or deadline"),
    ],
)
def test_settings_that_mean_nothing_are_refused(name, given, sentence):
    with pytest.raises(SettingError) as refusal:
        model(name, **given)
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "given", "ahead"),
    [
        ("bsp", {}, False),
        ("backup", {}, False),
        ("backup", {"epoch": 0.75}, True),
        ("ssp", {"staleness": 0}, False),
        ("ssp", {"staleness": 1}, True),
        ("async", {"push_every": 4}, True),
        ("async", {"fetch_every": 2}, False),
    ],
)
def test_parameters_are_asked_for_ahead_where_a_read_is_of_whatever_is_there(name, given, ahead):
    assert model(name, **given).asks_ahead is ahead


def test_more_backups_than_workers_are_refused():
    with pytest.raises(SettingError, match="k is 5; accepted: 1 to 4"):
        model("backup", k=5).closer(4)
