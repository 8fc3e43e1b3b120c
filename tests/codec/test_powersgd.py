"""PowerSGD alone: two thin matrices hold part of a matrix, and more of it from frame to frame."""

import contextlib

import pytest
import torch

from codec._values import decoded, encoded, memory_of, values_of, without_numba
from volary.codec._base import Encoded
from volary.codec.kernels import low_rank
from volary.codec.powersgd import PowerSgd
from volary.errors import SettingError

SHAPE = (60, 200)


def of_rank(rank, seed=0):
    """A matrix of this rank, with values about 1."""
    return values_of("normal", (SHAPE[0], rank), seed) @ values_of("normal", (rank, SHAPE[1]), seed + 1)


def sent(codec, values, memory):
    return decoded(codec, encoded(codec, values, memory), values.shape)


def near(got, values):
    torch.testing.assert_close(got, values, rtol=0, atol=1e-5 * float(values.abs().max()))


def rounding(values, rank, memory):
    """The most by which rounding can keep a matrix of this rank from travelling exactly, whatever the processor.

    A sum of n products of fp32, in any order, is off by n * u times the sum of the products' magnitudes (Higham 2002,
    3.1), and so is V @ R.T, R being the directions that the iteration begins with; its n has one more for each rounding
    that went into V. With V = U S W, that error E moves the range that is found: what is off in the result is
    E (W R.T)^-1 W, so little if W and R are far from orthogonal. The way back adds sums over rows, as they are.
    """
    u, exact = 2.0**-24, values.double()
    rows, columns = exact.shape
    codec_rank = memory.numel() // columns
    start = memory.double().view(codec_rank, columns)
    length = start.abs().sum(1, keepdim=True)
    anew = low_rank.fixed(torch.arange(start.numel())).view(start.shape) / columns
    start = torch.where(length > 0, start / length, anew)
    along = torch.linalg.svd(exact, full_matrices=False).Vh[:rank]
    onto = (columns + rank + 2) * u * exact.abs() @ start.abs().T
    onto += low_rank.DEPENDENT * (exact @ start.T).norm(dim=0)  # of a vector that is left out, as it is so small
    moved = onto @ (torch.linalg.pinv(along @ start.T) @ along).abs()
    back = (
        (rows + codec_rank + 3) * u * codec_rank * rows**0.5 * exact.abs().mean(0)
    )  # values of `left` are below rows**0.5
    return float((moved.norm(dim=0) + back).max())


@pytest.mark.parametrize("rank", [1, 2, 4])
@pytest.mark.parametrize("scale", [1e-34, 1e-20, 1.0, 1e30])
def test_a_matrix_of_as_high_a_rank_travels_exactly(rank, scale):
    codec = PowerSgd(rank=4)
    values = of_rank(rank, seed=18) * scale  # whose rows are far from orthogonal to the fixed directions
    memory = memory_of(codec, values)
    for _ in range(2):  # from fixed directions; from what the frame before found
        at_most = rounding(values.double() / scale, rank, memory)
        assert at_most < 2e-3 * values.double().abs().max() / scale, "and that is next to nothing"
        got = sent(codec, values, memory)
        torch.testing.assert_close(got.double() / scale, values.double() / scale, rtol=0, atol=at_most)


def test_the_first_frame_takes_away_and_never_adds():
    codec = PowerSgd(rank=4)
    for seed in range(5):
        values = values_of("normal", SHAPE, seed)
        assert (values - sent(codec, values, memory_of(codec, values))).norm() < values.norm()


@pytest.mark.parametrize("numba", [True, False])
def test_frames_of_the_same_matrix_come_to_the_best_approximation(numba):
    codec, values = PowerSgd(rank=3), of_rank(3) + 0.3 * values_of("normal", SHAPE, seed=9)
    left, sizes, right = torch.linalg.svd(values, full_matrices=False)
    best = left[:, :3] * sizes[:3] @ right[:3]
    memory = memory_of(codec, values)
    errors = []
    for _ in range(12):
        if numba:
            got = sent(codec, values, memory)
        else:
            with without_numba():
                got = sent(codec, values, memory)
        errors.append(float((got - values).norm()))
    assert errors[0] > errors[1] > errors[2]
    near(got, best)


@pytest.mark.parametrize("before", [torch.zeros(SHAPE), torch.ones(SHAPE), of_rank(1)])
@pytest.mark.parametrize("numba", [True, False])
def test_directions_that_told_nothing_are_looked_for_anew(before, numba):
    codec, memory, then = PowerSgd(rank=3), torch.zeros(3 * SHAPE[1]), of_rank(3, seed=5)
    near(sent(codec, before, memory), before)
    near(sent(codec, before, memory), before)
    at_most = rounding(then, 3, memory)
    assert at_most < 0.1 * then.abs().max(), "so that a direction that is missing would be seen"
    with contextlib.nullcontext() if numba else without_numba():
        torch.testing.assert_close(sent(codec, then, memory), then, rtol=0, atol=at_most)


def test_values_that_are_not_finite_leave_the_memory_as_it_was():
    codec, values = PowerSgd(), of_rank(2)
    memory = memory_of(codec, values)
    frame = encoded(codec, values, memory)
    before = memory.clone()
    values[3, 7] = float("nan")
    assert not codec.encode(values, frame, memory)
    assert torch.equal(memory, before)


@pytest.mark.parametrize("scale", [1e-34, 1.0, 1e30])
def test_in_one_call_with_feedback_frame_and_rest_are_as_in_three(scale):
    codec = PowerSgd(rank=3)
    values, before = (values_of("normal", SHAPE, seed) * scale for seed in (1, 2))
    memory, memory_of_three = memory_of(codec, values), memory_of(codec, values)
    for _ in range(2):
        residual, frame = before.clone(), torch.empty(codec.frame_bytes(*SHAPE), dtype=torch.uint8)
        assert codec.encode_with_feedback(values, residual, frame, memory) is Encoded.WHOLE
        sums = before + values
        assert torch.equal(frame, encoded(codec, sums, memory_of_three))
        codec.add(frame, sums, -1)
        assert torch.equal(residual, sums) and torch.equal(memory, memory_of_three)


def test_a_sum_with_the_residual_that_is_not_finite_is_told():
    codec, frame = PowerSgd(), torch.empty(PowerSgd().frame_bytes(*SHAPE), dtype=torch.uint8)
    large = torch.full(SHAPE, 3e38)
    found = codec.encode_with_feedback(large, large.clone(), frame, memory_of(codec, large))
    assert found is Encoded.TOO_LARGE


def test_bytes_are_those_of_the_thin_matrices_or_of_the_matrix_where_that_is_smaller():
    assert PowerSgd(rank=2).frame_bytes(1024, 4096) == 4 * 2 * (1024 + 4096)
    assert PowerSgd(rank=2).frame_bytes(4, 4) == 4 * 16 == PowerSgd(rank=9).frame_bytes(4, 4)
    assert PowerSgd(rank=2).memory_values(1024, 4096) == 2 * 4096
    assert PowerSgd(rank=2).memory_values(4, 4) == 0


def test_a_small_matrix_travels_as_it_is():
    values = values_of("normal", (4, 4), seed=0)
    assert torch.equal(sent(PowerSgd(), values, torch.zeros(0)), values)


def test_a_rank_below_one_is_refused():
    with pytest.raises(SettingError, match="rank is 0; accepted: 1 or more"):
        PowerSgd(rank=0)
