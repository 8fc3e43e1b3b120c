"""Groups of one run that train beside each other: every worker is in three of them, each with another partner."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import torch

from _workers import Workers, joined
from train._training import Trained, looked_at, made, session, started, trained
from volary.comm.groups.blocking import add_up
from volary.comm.memory.futex import why_not
from volary.session import Session
from volary.sharding.groups import Axis, RankMesh
from volary.train.loop import train

ROUNDING = 1e-11
PARTS = {"ring": [[0, 1], [2, 3]], "shared": [[0, 2], [1, 3]], "encoded": [[0, 3], [1, 2]]}
ROUTES = {"ring": "ring", "shared": "shared memory"}
STRATEGIES = {
    "ring": {"exchange": {"name": "allreduce", "route": "ring"}},
    "shared": {"exchange": {"name": "allreduce", "route": "auto"}},
    "encoded": {"exchange": {"name": "allreduce", "route": "torch"}, "codec": "onebit"},
}


def task(name: str, part: int) -> Session:
    """Each part of each way of dividing has its own data, order and first values."""
    seed = 1 + 2 * list(PARTS).index(name) + part
    source = {"name": "points", "samples": 30 + 4 * seed}
    strategy = {**STRATEGIES[name], "bucket_mb": 1e-4}  # several buckets
    return session("Exact", source=source, strategy=strategy, train={"steps": 12, "seed": seed})


def sums_along_axes(rank: int, world_size: int) -> dict[str, float]:
    """The sums of a number that no other rank has, added up along each axis, both, and none."""
    whole, mesh, found = joined(), RankMesh(data=2, tensor=2), {}
    ways: list[tuple[Axis, ...]] = [("data",), ("tensor",), ("data", "tensor"), ()]
    for axes in ways:
        group, number = whole.along(mesh, *axes), torch.tensor(float(2**rank))
        assert (group is whole) == (axes == ("data", "tensor"))
        add_up(number, group)
        found[" ".join(axes)] = number.item()
    return found


def test_a_mesh_s_axes_divide_ranks_into_groups_of_those_that_differ_along_them_alone(workers):
    tensor, data = {0: 3, 1: 3, 2: 12, 3: 12}, {0: 5, 1: 10, 2: 5, 3: 10}
    for rank, found in enumerate(workers(4, sums_along_axes)):
        assert found == {"tensor": tensor[rank], "data": data[rank], "data tensor": 15, "": 2**rank}


def part_of(rank: int, name: str) -> int:
    return next(part for part, members in enumerate(PARTS[name]) if rank in members)


def beside_each_other(rank: int, world_size: int) -> dict[str, Trained]:
    """Train in all groups at once, a thread each; what came of it, by the way of dividing."""
    trainings = {}
    with ExitStack() as stack, ThreadPoolExecutor() as threads:
        for name, parts in PARTS.items():
            group = joined().divided(parts)
            part = part_of(rank, name)
            it = made(group.rank, group.size, task(name, part), f"{name} {part}", group=group)
            stack.enter_context(started(it))
            trainings[name] = it
        outcomes = {name: threads.submit(train, it) for name, it in trainings.items()}
        return {name: looked_at(it, outcomes[name].result()) for name, it in trainings.items()}


def encoded_apart(rank: int, world_size: int) -> list[Trained]:
    """Results of two workers that carry out the encoded tasks and have nothing else to do."""
    return [trained(rank, world_size, task("encoded", part), f"apart {part}") for part in range(2)]


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Trained]]:
    return Workers(tmp_path_factory.mktemp("together"))(4, beside_each_other)


@pytest.mark.slow  # tests/comm has groups
@pytest.mark.parametrize("name", ["ring", "shared"])
def test_groups_that_overlap_train_beside_each_other_and_each_equals_one_device(together, name, tmp_path, monkeypatch):
    if name == "shared" and why_not():
        pytest.skip(why_not())
    monkeypatch.chdir(tmp_path)
    alone = [trained(0, 1, task(name, part), f"{part}") for part in range(2)]
    for rank, found in enumerate(together):
        expected = alone[part_of(rank, name)]
        assert found[name].outcome == "finished"
        assert found[name].losses == pytest.approx(expected.losses, abs=1e-6)  # agreed on in 32 bits
        for parameter, values in expected.parameters.items():
            torch.testing.assert_close(found[name].parameters[parameter], values, rtol=0, atol=ROUNDING)
    first = [members[0] for members in PARTS[name]]
    routes = {rank: found[name].notes("route")[0] for rank, found in enumerate(together) if found[name].notes("route")}
    assert {rank: route.partition(",")[0] for rank, route in routes.items()} == dict.fromkeys(first, ROUTES[name])


def test_a_group_whose_sums_are_encoded_is_what_two_workers_are_who_have_nothing_else_to_do(workers, together):
    apart = workers(2, encoded_apart)
    for rank, found in enumerate(together):
        expected = apart[0][part_of(rank, "encoded")]
        assert found["encoded"].losses == expected.losses
        assert all(torch.equal(found["encoded"].parameters[one], its) for one, its in expected.parameters.items())
