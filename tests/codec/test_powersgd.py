"""What is special to PowerSGD: what of a matrix two thin ones hold, and how it becomes more from frame to frame."""

import pytest
import torch

from codec._values import decoded, encoded, memory_of, values_of, without_numba
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


@pytest.mark.parametrize("rank", [1, 2, 4])
@pytest.mark.parametrize("scale", [1e-34, 1e-20, 1.0, 1e30])
def test_a_matrix_of_as_high_a_rank_travels_exactly(rank, scale):
    codec = PowerSgd(rank=4)
    values = of_rank(rank) * scale
    near(sent(codec, values, memory_of(codec, values)).double() / scale, values.double() / scale)


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
    codec, memory = PowerSgd(rank=3), torch.zeros(3 * SHAPE[1])
    near(sent(codec, before, memory), before)
    near(sent(codec, before, memory), before)
    if numba:
        near(sent(codec, of_rank(3, seed=5), memory), of_rank(3, seed=5))
    else:
        with without_numba():
            near(sent(codec, of_rank(3, seed=5), memory), of_rank(3, seed=5))


def test_values_that_are_not_finite_leave_the_memory_as_it_was():
    codec, values = PowerSgd(), of_rank(2)
    memory = memory_of(codec, values)
    frame = encoded(codec, values, memory)
    before = memory.clone()
    values[3, 7] = float("nan")
    assert not codec.encode(values, frame, memory)
    assert torch.equal(memory, before)


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
