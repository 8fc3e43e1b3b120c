"""Which group a worker begins to connect, told again and again what its driver has named and asked for."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from volary.run.control.requests import ChangeMembers, ChangeRate
from volary.run.launch.members import GroupMembers
from volary.train.recovery import next_group
from volary.train.recovery.next_group import NextGroup

NOW = GroupMembers((0, 1, 2), 4)


@dataclass
class Connecting:
    members: GroupMembers
    given_up: bool = False

    def give_up(self) -> None:
        self.given_up = True


class Told:
    """A worker's `NextGroup`, and all that it has begun to connect."""

    def __init__(self, rank: int, begun: list[Connecting]) -> None:
        self.begun, self.group = begun, NextGroup()
        self._member: Any = SimpleNamespace(place=SimpleNamespace(rank=rank))

    def __call__(self, newest: GroupMembers, *requests: ChangeMembers | ChangeRate) -> None:
        self.group.expect(self._member, newest, [msgspec.to_builtins(one) for one in requests])


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Connecting]:
    found: list[Connecting] = []

    def begin(_: Any, members: GroupMembers) -> Connecting:
        found.append(Connecting(members))
        return found[-1]

    monkeypatch.setattr(next_group, "_begun", begin)
    return found


@pytest.mark.parametrize("rank", [0, 2, 3])
def test_those_that_follow_begin_to_connect_once_and_go_on_when_they_are_named(begun, rank):
    told, follow = Told(rank, begun), ChangeMembers(4, (1,), (0, 2, 3))
    told(NOW)
    told(NOW, ChangeRate(0.1))
    assert not begun and told.group.taken() is None
    for _ in range(3):
        told(NOW, ChangeMembers(3, (), (0, 1, 2)), follow, ChangeRate(0.1))
    told(GroupMembers((0, 2, 3), 5), follow)
    assert [(one.members, one.given_up) for one in begun] == [(GroupMembers((0, 2, 3), 5), False)]
    assert told.group.taken() is begun[0] and told.group.taken() is None


def test_who_leaves_connects_with_nobody(begun):
    Told(1, begun)(NOW, ChangeMembers(4, (1,), (0, 2, 3)))
    assert not begun


def test_it_is_given_up_for_others_that_are_expected_or_named(begun):
    told, first, newer = Told(0, begun), ChangeMembers(4, (), (0, 1, 2, 3)), ChangeMembers(4, (1,), (0, 2, 3))
    told(NOW, first)
    told(NOW, first, newer)
    assert [(one.members.ranks, one.given_up) for one in begun] == [((0, 1, 2, 3), True), ((0, 2, 3), False)]
    told(GroupMembers((0, 1), 5), first, newer)
    assert begun[1].given_up and told.group.taken() is None, "a loss came before"
    told(GroupMembers((0, 1), 5), first, newer, ChangeMembers(5, (), (0, 1, 3)))
    told.group.give_up()
    assert begun[2].given_up and told.group.taken() is None
