"""Collectives between tasks: threads of this process with real sockets, which have met as tasks do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from volary.comm.control.connection import Connection
from volary.comm.control.errors import KeyRefused
from volary.errors import BadInput
from volary.spark.collectives import TaskGroup, Team, owner_of


class Meeting:
    """Where so many tasks meet, as Spark has them do."""

    def __init__(self, size: int) -> None:
        self.said, self.all = [""] * size, threading.Barrier(size)

    def context(self, rank: int) -> Any:
        def gather(words: str) -> list[str]:
            self.said[rank] = words
            self.all.wait(60)
            return list(self.said)

        infos = [SimpleNamespace(address="127.0.0.1:1")] * len(self.said)
        return SimpleNamespace(
            attemptNumber=lambda: 0,
            partitionId=lambda: rank,
            getTaskInfos=lambda: infos,
            allGather=gather,
            barrier=lambda: self.all.wait(60),
        )


def together(size: int, work: Callable[[Team], Any]) -> list[Any]:
    """The value that each of so many tasks returns."""
    meeting, group = Meeting(size), TaskGroup()

    def task(rank: int) -> Any:
        with group.joined(meeting.context(rank)) as team:
            return work(team)

    with ThreadPoolExecutor(size) as tasks:
        return list(tasks.map(task, range(size)))


@given(size=st.integers(1, 4), values=st.integers(0, 9), seed=st.integers(0, 99))
@settings(max_examples=8, deadline=None)
def test_sums_gathers_and_broadcasts_are_the_same_on_every_task(size, values, seed):
    arrays = [np.random.default_rng([seed, rank]).random((values, 2)) for rank in range(size)]

    def work(team: Team) -> Any:
        mine = arrays[team.rank]
        return team.all_reduce(mine), team.all_gather(mine[: team.rank]), team.broadcast(mine, root=size - 1)

    for total, gathered, sent in together(size, work):
        np.testing.assert_allclose(total, sum(arrays), rtol=1e-12)
        assert [one.shape for one in gathered] == [(min(rank, values), 2) for rank in range(size)]
        assert (sent == arrays[-1]).all()


def test_keys_are_regrouped_to_one_owner_each_with_the_sum_of_all():
    def work(team: Team) -> Any:
        return team.regroup({name: np.array([1.0, team.rank]) for name in "abcdef"[: 3 + team.rank]})

    found = together(3, work)
    assert sorted(name for one in found for name in one) == list("abcde")
    for rank, one in enumerate(found):
        assert all(owner_of(name, 3) == rank for name in one)
    joined = {name: array.tolist() for one in found for name, array in one.items()}
    assert (joined["a"], joined["d"], joined["e"]) == ([3.0, 3.0], [2.0, 3.0], [1.0, 2.0])


def test_a_rotated_model_is_what_one_process_makes_of_it():
    """Matrix factorisation: each task has its users' ratings, and parts of the items' factors go round."""
    size, rng = 3, np.random.default_rng(7)
    ratings, users, items = rng.random((6, 6)), rng.random((6, 2)), rng.random((6, 2))

    def work(team: Team) -> Any:
        mine, part = users[2 * team.rank :][:2], items[2 * team.rank :][:2].copy()
        for turn in range(size):
            first = 2 * ((team.rank - turn) % size)
            errors = ratings[2 * team.rank :][:2, first : first + 2] - mine @ part.T
            mine, part = mine + 0.01 * errors @ part, part + 0.01 * errors.T @ mine
            part = team.rotate(part)
        return mine, part

    alone_users, alone_items = users.copy(), items.copy()
    for turn in range(size):  # in a turn tasks have different users and different items
        for rank in range(size):
            rows, columns = (
                slice(2 * rank, 2 * rank + 2),
                slice(2 * ((rank - turn) % size), 2 * ((rank - turn) % size) + 2),
            )
            errors = ratings[rows, columns] - alone_users[rows] @ alone_items[columns].T
            user, item = alone_users[rows].copy(), alone_items[columns].copy()
            alone_users[rows], alone_items[columns] = user + 0.01 * errors @ item, item + 0.01 * errors.T @ user
    found = together(size, work)
    assert np.array_equal(np.concatenate([mine for mine, _ in found]), alone_users)
    assert np.array_equal(np.concatenate([part for _, part in found]), alone_items)


def test_a_large_array_travels_in_pieces():
    large = np.arange(3 << 20, dtype=np.int64)  # 24 MiB
    first, second = together(2, lambda team: team.rotate(large + team.rank))
    assert np.array_equal(first, large + 1)
    assert np.array_equal(second, large)


def test_arrays_that_differ_between_tasks_and_an_array_too_few_are_refused():
    def sums(team: Team) -> Any:
        with pytest.raises(BadInput, match="arrays differ in size or type between tasks"):
            team.all_reduce(np.zeros(4, np.float32 if team.rank else np.float64))

    together(2, sums)

    def few(team: Team) -> Any:
        with pytest.raises(BadInput, match="1 arrays for 2 tasks; accepted: one for each"):
            team.exchange([np.zeros(1)])

    together(2, few)


def test_nobody_without_the_group_s_key_is_let_in():
    def work(team: Team) -> Any:
        host, port = team._where[team.rank]
        with pytest.raises(KeyRefused):
            Connection.open(host, port, TaskGroup().key, "tasks", {})

    together(1, work)
