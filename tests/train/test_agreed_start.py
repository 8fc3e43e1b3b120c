"""Workers that meet again go on from the newest state of any of them, also where a meeting before this one broke."""

from __future__ import annotations

from dataclasses import replace

import pytest

from volary.run.launch.members import GroupMembers
from volary.train.recovery.agreed_start import AgreedStart, from_newest
from volary.train.recovery.kept_state import KeptState


def kept(step: int, rank: int) -> KeptState:
    return KeptState(step, {"update": step}, {"generators": rank}, {"generators": rank}, None, 0, 0)


def meet(members: GroupMembers, states: dict[int, KeptState | None], spare: frozenset[int]) -> dict[int, AgreedStart]:
    """Let the members meet: each says what it has, and then all go on."""
    words = list[list[object]]()

    def say(word: list[object]) -> list[list[object]]:
        words.append(word)
        return [word]

    for rank in members.ranks:
        from_newest(members, rank, states[rank], say, spare=rank in spare)
    return {
        rank: from_newest(members, rank, states[rank], lambda _: words, spare=rank in spare) for rank in members.ranks
    }


@pytest.mark.parametrize("spare", [frozenset(), frozenset({3})])
def test_newest_state_counts_though_a_group_breaks_before_the_others_had_it(spare):
    states: dict[int, KeptState | None] = {
        0: kept(20, 0),
        1: kept(21, 1),
        2: kept(21, 2),
        3: None if spare else kept(20, 3),
    }
    first = meet(GroupMembers((0, 1, 2, 3), 1), states, spare)
    assert {one.members.ranks for one in first.values()} == {(1, 0, 2, 3)}
    again = {rank: one.again for rank, one in first.items()}
    second = meet(GroupMembers((0, 2, 3), 2), again, spare)
    assert {one.members.ranks for one in second.values()} == {(2, 0, 3)}
    assert {rank: one.kept and one.kept.alike for rank, one in second.items()} == {0: {}, 2: {"update": 21}, 3: {}}
    assert second[0].kept == replace(kept(20, 0), alike={}), "what is a worker's alone is still its own"


def test_workers_of_which_none_has_a_whole_state_any_more_begin_from_the_newest_checkpoint():
    first = meet(GroupMembers((0, 1, 2), 1), {0: kept(21, 0), 1: kept(20, 1), 2: kept(20, 2)}, frozenset())
    second = meet(GroupMembers((1, 2), 2), {rank: one.again for rank, one in first.items()}, frozenset())
    assert [one.kept for one in second.values()] == [None, None]


def test_nobody_has_finished_a_step_while_one_has_not_trained():
    found = meet(GroupMembers((0, 1), 1), {0: kept(0, 0), 1: None}, frozenset())
    assert [one.kept for one in found.values()] == [None, None]
