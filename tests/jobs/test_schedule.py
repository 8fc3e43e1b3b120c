"""Who starts, who waits for what, who gives way: each case by itself, on a machine of four cores."""

from __future__ import annotations

from typing import Any

import msgspec

from volary.jobs.entry import Capacity, Demand, Given, HostCapacity, QueueEntry
from volary.jobs.forecast import expected_starts
from volary.jobs.runner import after_end
from volary.jobs.schedule import Decisions, decide

FOUR = Capacity((0, 1, 2, 3), 8 << 30)


def waiting(run: str, cores: int, place: float = 0, **more: Any) -> QueueEntry:
    return QueueEntry(run=run, demand=Demand(cores, 0, more.pop("gpus", 0)), place=place, **more)


def running(run: str, cores: tuple[int, ...], started_s: float = 0, **more: Any) -> QueueEntry:
    entry = waiting(run, len(cores), **more)
    return msgspec.structs.replace(entry, state="running", given=Given(cores), started_s=started_s)


def started(decided: Decisions) -> list[str]:
    return [one.run for one in decided.start]


def test_each_gets_cores_that_nobody_else_has():
    decided = decide([running("a", (0, 2)), waiting("b", 1, 1), waiting("c", 1, 2)], FOUR, 0)
    assert [(one.run, one.given.cores) for one in decided.start] == [("b", (1,)), ("c", (3,))]


def test_priority_counts_first_and_then_the_place():
    first, second, dear = waiting("first", 2, 1), waiting("second", 2, 2), waiting("dear", 2, 3, priority=1)
    decided = decide([second, dear, first], FOUR, 0)
    assert started(decided) == ["dear", "first"]
    assert decided.reasons["second"].words == "waits for 2 cores"


def test_a_small_run_does_not_overtake_a_large_one_that_waits():
    decided = decide([running("a", (0, 1)), waiting("large", 4, 1), waiting("small", 1, 2)], FOUR, 0)
    assert started(decided) == []
    assert decided.reasons["large"].words == "waits for 2 of 4 cores"
    assert decided.reasons["small"].words == "waits behind large"


def test_a_short_run_fills_a_gap_that_is_known_to_be_long_enough():
    entries = [running("a", (0, 1), time_s=100), waiting("large", 4, 1)]
    fitting, longer = waiting("fitting", 1, 2, time_s=60), waiting("longer", 1, 3, time_s=200)
    decided = decide([*entries, fitting, longer], FOUR, 10)
    assert [(one.run, one.fills) for one in decided.start] == [("fitting", True)]
    assert decided.reasons["large"].starts_s == 100


def test_what_fills_a_gap_gives_way_once_the_gap_is_over():
    filler = msgspec.structs.replace(running("filler", (0,), place=2, time_s=60), fills=True)
    assert list(decide([waiting("large", 4, 1), filler], FOUR, 30).stop) == ["filler"]
    ordinary = msgspec.structs.replace(filler, fills=False)
    assert not decide([waiting("large", 4, 1), ordinary], FOUR, 30).stop


def test_who_gives_way_is_of_the_least_priority_then_the_youngest_and_no_more_than_needed():
    entries = [
        running("old", (0,), started_s=1, priority=0),
        running("young", (1,), started_s=2, priority=0),
        running("better", (2, 3), started_s=3, priority=1),
    ]
    assert list(decide([*entries, waiting("dear", 1, 9, priority=2)], FOUR, 5).stop) == ["young"]
    assert list(decide([*entries, waiting("dear", 3, 9, priority=2)], FOUR, 5).stop) == ["young", "better"]
    assert not decide([*entries, waiting("equal", 4, 9, priority=1)], FOUR, 5).stop


def test_nobody_gives_way_where_that_would_not_be_enough():
    entries = [running("low", (0,)), running("high", (1,), priority=9)]
    assert not decide([*entries, waiting("dear", 4, 1, priority=5)], FOUR, 0).stop


def test_a_run_that_would_lose_what_it_did_does_not_give_way():
    entries = [running("loop", (0, 1, 2, 3)), waiting("dear", 1, 1, priority=5)]
    assert not decide(entries, FOUR, 0, unsaved=["loop"]).stop


def test_gpus_are_given_by_number_and_not_those_that_strangers_use():
    two = Capacity((0, 1, 2, 3), 0, gpus=(0, 1, 2), used_gpus=(1,))
    decided = decide(
        [waiting("one", 1, 1, gpus=1), waiting("next", 1, 2, gpus=1), waiting("last", 1, 3, gpus=1)], two, 0
    )
    assert [one.given.gpus for one in decided.start] == [(0,), (2,)]
    assert decided.reasons["last"].words == "waits for 1 GPU"


def test_cores_that_are_used_outside_of_the_queue_are_not_given_and_who_waits_for_them_is_told():
    four = Capacity((0, 1, 2, 3), 8 << 30, used_cores=(0, 2))
    decided = decide([waiting("one", 1, 1), waiting("two", 2, 2)], four, 0)
    assert [one.given.cores for one in decided.start] == [(1,)]
    assert decided.reasons["two"].words == "waits for 1 of 2 cores (2 cores used outside of the queue)"


def test_what_this_machine_never_has_holds_up_nobody():
    decided = decide([waiting("huge", 8, 1), waiting("small", 1, 2)], FOUR, 0)
    assert started(decided) == ["small"]
    assert decided.reasons["huge"].words == "needs 8 cores, and this machine has 4"


ALPHA, BETA = HostCapacity("alpha", (0, 1), 8 << 30, folders=(".",)), HostCapacity("beta", why_not="beta: no route")
THREE = msgspec.structs.replace(FOUR, hosts=(ALPHA, BETA))


def test_a_run_that_may_be_elsewhere_starts_on_the_first_machine_with_room():
    here = running("here", (0, 1, 2, 3))
    decided = decide([here, waiting("fixed", 1, 1), waiting("a", 2, 2, movable=True)], THREE, 0)
    assert [(one.run, one.given) for one in decided.start] == [("a", Given((0, 1), host="alpha"))]
    assert decided.reasons["fixed"].words == "waits for 1 core"


def test_who_waits_for_several_machines_is_told_of_each_and_of_one_that_is_not_reached():
    there = msgspec.structs.replace(running("there", (0,)), given=Given((0,), host="alpha"))
    entries = [running("here", (0, 1, 2)), there, waiting("b", 2, 1, movable=True), waiting("c", 1, 2, movable=True)]
    decided = decide(entries, THREE, 0)
    assert started(decided) == []
    words = "waits for 1 of 2 cores on this machine or 1 of 2 cores on alpha; beta: no route"
    assert decided.reasons["b"].words == words
    assert decided.reasons["c"].words == "waits behind b"


def test_a_machine_that_is_too_small_or_has_not_the_run_s_folder_does_not_count():
    full = running("here", (0, 1, 2, 3))
    decided = decide([full, waiting("a", 3, 1, movable=True), waiting("b", 1, 2, movable=True, folder="/b")], THREE, 0)
    assert started(decided) == []
    assert decided.reasons["a"].words == "waits for 3 cores on this machine; alpha has 2; beta: no route"
    none = decide([waiting("c", 5, 1, movable=True)], THREE, 0)
    words = "needs 5 cores, and this machine has 4; alpha has 2; beta: no route"
    assert none.reasons["c"].words == words
    alone = decide([full, waiting("b", 1, 2, movable=True, folder="/b")], THREE, 0)
    assert alone.reasons["b"].words == "waits for 1 core on this machine; alpha has no folder /b; beta: no route"


def test_gpus_of_another_machine_are_given_by_number_side_by_side_and_not_those_that_strangers_use():
    alpha = HostCapacity("alpha", (0, 1, 2, 3), 9, folders=(".",), gpus=(0, 1, 2), used_gpus=(0, 1))
    machines = Capacity((0, 1), 9, hosts=(alpha,))
    has = running("a", (0,), gpus=1, movable=True)
    has = msgspec.structs.replace(has, given=Given((0,), (1,), "alpha"))
    wants = {"movable": True, "gpus": 1}
    decided = decide([has, waiting("b", 1, 1, **wants), waiting("c", 1, 2, **wants)], machines, 0)
    assert started(decided) == ["b"]
    assert [(one.given.host, one.given.gpus) for one in decided.start] == [("alpha", (2,))]
    assert decided.reasons["c"].words == "waits for 1 GPU on alpha"
    many = decide([waiting("d", 1, 1, movable=True, gpus=4)], machines, 0)
    assert many.reasons["d"].words == "needs 4 GPUs, and this machine has 0; alpha has 3 GPUs"


def test_room_is_made_where_those_that_give_way_are_the_least_dear():
    there = msgspec.structs.replace(running("there", (0, 1), priority=0), given=Given((0, 1), host="alpha"))
    here = running("here", (0, 1, 2, 3), priority=1)
    assert list(decide([here, there, waiting("dear", 2, 1, priority=2, movable=True)], THREE, 0).stop) == ["there"]
    assert list(decide([here, there, waiting("dear", 3, 1, priority=2, movable=True)], THREE, 0).stop) == ["here"]


def test_a_run_whose_workers_come_and_go_starts_on_the_fewest_cores_or_on_as_many_as_are_free():
    elastic = waiting("elastic", 2, 1, between=(2, 8))
    (alone,) = decide([elastic], FOUR, 0).start
    assert (alone.given.cores, alone.demand.cores) == ((0, 1, 2, 3), 4)
    (beside,) = decide([running("a", (0, 1)), elastic, waiting("later", 1, 2)], FOUR, 0).start
    assert (beside.run, beside.given.cores) == ("elastic", (2, 3))
    assert decide([running("a", (0, 1, 2)), elastic], FOUR, 0).reasons["elastic"].words == "waits for 1 of 2 cores"
    again = after_end(msgspec.structs.replace(alone, state="stopping", put_back=True), "stopped", "")
    assert (again.state, again.demand.cores, again.given) == ("waiting", 2, None)


def test_it_takes_no_cores_that_an_earlier_run_waits_for():
    entries = [running("a", (0, 1), time_s=100), waiting("large", 3, 1), waiting("elastic", 1, 2, between=(1, 8))]
    filler = msgspec.structs.replace(entries[2], time_s=50)
    (begun,) = decide([*entries[:2], filler], FOUR, 0).start
    assert (begun.fills, begun.given.cores) == (True, (2,))


def test_a_run_waits_for_those_it_comes_after_and_one_that_is_held_until_it_is_released():
    decided = decide(
        [running("a", (0,)), waiting("b", 1, 1, after=("a",)), waiting("c", 1, 2, held=True)], FOUR, 0, unfinished=()
    )
    assert started(decided) == []
    assert {run: reason.words for run, reason in decided.reasons.items()} == {"b": "comes after a", "c": "held"}
    assert started(decide([waiting("b", 1, 1, after=("a",))], FOUR, 0, unfinished=())) == ["b"]


def test_when_each_starts_is_told_as_far_as_it_is_known_what_ends_before():
    entries = [
        running("a", (0, 1, 2, 3), time_s=60),
        waiting("b", 4, 1, time_s=30),
        waiting("c", 4, 2),
        waiting("d", 1, 3),
    ]
    assert expected_starts(entries, FOUR, 10, ends={"a": 50}) == {"b": 50, "c": 80}


def test_a_run_that_a_machine_ended_which_is_shut_down_waits_again_and_has_lost_nothing():
    entry = running("a", (0,), losses=3)
    assert after_end(entry, "terminated", "") == waiting("a", 1, losses=3)
    assert after_end(msgspec.structs.replace(entry, cancelled=True), "terminated", "") is None
    assert after_end(entry, "stopped", "") is None


def test_settings_of_a_resumed_run_are_given_to_its_driver_until_it_has_begun():
    entry = msgspec.structs.replace(running("a", (0,)), pid=7, overrides=("optimizer.lr=0.5",))
    assert after_end(entry, "not begun", "").overrides == entry.overrides
    assert after_end(entry, "lost", "").overrides == ()
