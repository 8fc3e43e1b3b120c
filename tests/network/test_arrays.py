"""Distributed arrays: what is made, mapped, reduced, cut anew and learned is one process's, however it is cut."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from _workers import joined
from volary.comm.groups.tensor_messages import TensorMessages
from volary.errors import BadInput
from volary.network.arrays import Dense, DistributedArray, LocallyConnected
from volary.network.arrays.boxes import Box, cut, whole

WORKERS = 3
EXACT = {"rtol": 0, "atol": 1e-13}


class Alone:
    """The channel of one worker among some, for what needs no message."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size


def values(seed: int, shape: tuple[int, ...]) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(shape=st.lists(st.integers(0, 7), min_size=1, max_size=3), data=st.data())
def test_boxes_of_a_grid_hold_each_entry_once_as_evenly_as_can_be(shape, data):
    grid = [data.draw(st.integers(1, 4)) for _ in shape]
    boxes = cut(shape, grid, prod(grid))
    count = torch.zeros(shape)
    for box in boxes:
        count[box.within(whole(shape))] += 1
        assert all(abs(size - of / parts) < 1 for size, of, parts in zip(box.shape, shape, grid, strict=True))
    assert (count == 1).all()


@st.composite
def a_case(draw: st.DrawFn) -> dict[str, Any]:
    shape = tuple(draw(st.lists(st.integers(0, 5), min_size=2, max_size=3)))
    grids = [tuple(WORKERS if dim == at else 1 for dim in range(len(shape))) for at in range(len(shape))]

    def a_box() -> Box:
        spans = [sorted((draw(st.integers(0, size)), draw(st.integers(0, size)))) for size in shape]
        return Box(tuple(low for low, _ in spans), tuple(high for _, high in spans))

    return {
        "shape": shape,
        "seed": draw(st.integers(0, 40)),
        "grids": [draw(st.sampled_from(grids)) for _ in range(2)],
        "boxes": [a_box() for _ in range(WORKERS)],
    }


def one_case(channel: TensorMessages, case: dict[str, Any]) -> dict[str, Tensor]:
    """This worker's result, and the gradient of its block."""
    tensor = values(case["seed"], case["shape"])
    first, second = case["grids"]
    made = DistributedArray.made(
        channel, case["shape"], lambda *at: sum((size + 2) * one for size, one in enumerate(at)), first
    )
    array = DistributedArray.of(channel, tensor, first)
    array.values.requires_grad_()
    again = array.map(torch.tanh).recut(second)
    seen = again.recut(boxes=case["boxes"])
    (again.values.sin().sum() + (seen.values * (1 + channel.rank)).cos().sum() + again.gather().exp().sum()).backward()
    found = {"made": made.gather(), "gathered": again.gather(), "again": again.values, "seen": seen.values}
    if tensor.numel():
        # of matrices the product: associative, and no other order will do
        found["sum"] = again.reduce(torch.sum)
        found["product"] = array.reduce(lambda block: _turn(block.sum()), torch.matmul)
        found["most"] = array.reduce(torch.max, torch.maximum)
    return {name: one.detach() for name, one in found.items()} | {"gradient": array.values.grad}


def _turn(angle: Tensor) -> Tensor:
    return torch.stack([torch.stack([angle.cos(), 2 * angle.sin()]), torch.stack([-angle.sin(), 1 + angle.cos()])])


def all_cases(rank: int, world_size: int, cases: list[dict[str, Any]]) -> list[dict[str, Tensor]]:
    channel = TensorMessages(joined(), torch.device("cpu"))
    return [one_case(channel, case) for case in cases]


@settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cases=st.lists(a_case(), min_size=20, max_size=20))
def test_any_shape_and_cut_gives_one_process_s_results_and_gradients_also_of_empty_parts(workers, cases):
    found = workers(WORKERS, all_cases, cases)
    for number, case in enumerate(cases):
        tensor = values(case["seed"], case["shape"]).requires_grad_()
        mapped, everything = tensor.tanh(), whole(case["shape"])
        loss = mapped.sin().sum() + WORKERS * mapped.exp().sum()
        for rank, box in enumerate(case["boxes"]):
            loss = loss + (mapped[box.within(everything)] * (1 + rank)).cos().sum()
        loss.backward()
        first, second = (cut(case["shape"], grid, WORKERS) for grid in case["grids"])
        turn = torch.eye(2, dtype=torch.float64)
        for box in first:
            turn = turn @ (_turn(tensor[box.within(everything)].sum()) if box.size else torch.eye(2).double())
        at = torch.meshgrid(*map(torch.arange, case["shape"]), indexing="ij")
        for rank in range(WORKERS):
            expected = {
                "made": sum((size + 2) * one for size, one in enumerate(at)),
                "gathered": mapped,
                "again": mapped[second[rank].within(everything)],
                "seen": mapped[case["boxes"][rank].within(everything)],
                "gradient": tensor.grad[first[rank].within(everything)],
            }
            if tensor.numel():
                expected |= {"sum": mapped.sum(), "product": turn, "most": tensor.max()}
            assert found[rank][number].keys() == expected.keys()
            for name, one in expected.items():
                torch.testing.assert_close(found[rank][number][name], one.detach(), **EXACT)


class Whole(nn.Module):
    """The network of `learn` in one process: each window has weights of its own, then a dense layer."""

    def __init__(self, local: LocallyConnected, dense: Dense) -> None:
        super().__init__()
        self.local, self.dense = local, dense

    def forward(self, images: Tensor) -> Tensor:
        windows = functional.unfold(images, 3, stride=2, padding=1)
        found = torch.einsum("ncp,poc->nop", windows, self.local.weight) + self.local.bias.t()
        return functional.linear(found.tanh().flatten(1), self.dense.weight, self.dense.bias)


def learn(rank: int, world_size: int, grid: tuple[int, int], size: tuple[int, int]) -> list[float]:
    torch.set_default_dtype(torch.float64)
    channel = TensorMessages(joined(), torch.device("cpu"))
    local = LocallyConnected(channel, (2, *size), 3, window=3, stride=2, padding=1, grid=grid, seed=1)
    features = 3 * prod(local.places)
    dense = Dense(channel, features, 4, seed=2)
    optimizer = torch.optim.SGD([*local.parameters(), *dense.parameters()], lr=0.1, momentum=0.9)
    losses = []
    for step in range(5):
        optimizer.zero_grad()
        images, wanted = values(step, (6, 2, *size)), values(step + 50, (6, 4))
        found = local(DistributedArray.of(channel, images)).map(torch.tanh).recut((world_size, 1, 1, 1))
        scores = dense(DistributedArray(channel, found.values.flatten(1), _flat(found)))
        target = DistributedArray.of(channel, wanted, (1, world_size))
        error = scores.map(lambda one, other: (one - other) ** 2, target)
        (error.values.sum() / 24).backward()
        losses.append(error.reduce(torch.sum).item() / 24)
        optimizer.step()
    return losses


def _flat(array: DistributedArray) -> list[Box]:
    features = prod(array.shape[1:])
    return [Box((box.starts[0], 0), (box.ends[0], features)) for box in array.boxes]


@pytest.mark.parametrize(
    ("grid", "size"), [((3, 1), (7, 6)), pytest.param((1, 3), (3, 4), marks=pytest.mark.slow)], ids=str
)
def test_layers_on_arrays_learn_what_one_process_does_also_with_more_workers_than_rows(workers, grid, size):
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        local = LocallyConnected(Alone(), (2, *size), 3, window=3, stride=2, padding=1, seed=1)
        net = Whole(local, Dense(Alone(), 3 * prod(local.places), 4, seed=2))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        expected = []
        for step in range(5):
            optimizer.zero_grad()
            loss = functional.mse_loss(net(values(step, (6, 2, *size))), values(step + 50, (6, 4)))
            loss.backward()
            optimizer.step()
            expected.append(loss.item())
    finally:
        torch.set_default_dtype(default)
    for losses in workers(WORKERS, learn, grid, size):
        assert losses == pytest.approx(expected, abs=1e-12)


def test_a_function_of_rows_is_applied_to_each_of_them():
    array = DistributedArray.of(Alone(), values(3, (4, 5)))
    torch.testing.assert_close(array.map_rows(lambda row: row.cumsum(0)).values, array.values.cumsum(1))
    assert DistributedArray.of(Alone(2, 4), values(3, (2, 5))).map_rows(lambda row: row[:2]).shape == (2, 2)


def among(workers: int, rank: int, shape: tuple[int, ...], grid: tuple[int, ...] | None = None) -> DistributedArray:
    return DistributedArray.of(Alone(rank, workers), values(1, shape), grid)


ROWS, COLUMNS = among(3, 1, (6, 4)), among(3, 1, (6, 4), (1, 3))
ALONE = among(1, 0, (6, 4))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: among(3, 0, (6, 4), (2, 1)), r"grid is \[2, 1\] .* shape \[6, 4\]; .* workers, 3"),
        (lambda: ROWS.made(Alone(1, 3), (6, 4), lambda row, _: row[:1]), "worker 1 has a block of shape"),
        (lambda: DistributedArray(Alone(), values(1, (2, 2)), []), "was given 0 boxes; accepted: one for each of 1"),
        (lambda: ROWS.map(lambda block: block[1:]), r"made \[1, 4\] of a block of shape \[2, 4\]; .* along 0"),
        (lambda: ROWS.map(lambda block: block @ block), r"cannot be applied to a block of shape \[2, 4\]: "),
        (lambda: ROWS.map(lambda block: 3), "made a int of a block; accepted: a tensor"),
        (lambda: ROWS.map(torch.add, COLUMNS), "are cut differently"),
        (lambda: COLUMNS.map_rows(torch.sum), r"accepted: whole rows, by recut\(\)"),
        (lambda: among(1, 0, (0, 4)).reduce(torch.sum), "come to nothing, as it is empty"),
        (lambda: among(4, 0, (6, 4)).reduce(lambda block: block[:, 0]), r"come to \[1\] and \[2\]"),
        (lambda: Dense(Alone(), 5, 3)(ALONE), r"shape \[6, 4\]; accepted: \[samples, 5\]"),
        (lambda: LocallyConnected(Alone(), (1, 4, 4), 2, window=6), "a window of 6 with padding 0 has no place"),
        (lambda: LocallyConnected(Alone(), (1, 4, 4), 2, window=2)(ALONE), r"accepted: \[samples, 1, 4, 4\]"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_runs(call, said):
    with pytest.raises(BadInput, match=said):
        call()


def test_blocks_that_overlap_are_not_cut_anew():
    overlapping = DistributedArray(Alone(0, 2), values(1, (2, 2)), [Box((0, 0), (2, 2))] * 2)
    with pytest.raises(BadInput, match="lie on several workers; accepted: one whose blocks do not overlap"):
        overlapping.recut((1, 2))
