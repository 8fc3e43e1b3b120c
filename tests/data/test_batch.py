import pytest
import torch

from volary.data.batching.batch import Batch


def batch_of(count: int, total: int) -> Batch:
    return Batch(torch.arange(count * 2.0).view(count, 2), torch.arange(count), total, 0, 0, False)


@pytest.mark.parametrize(("count", "pieces", "sizes"), [(7, 3, [3, 2, 2]), (2, 4, [1, 1]), (5, 1, [5]), (0, 3, [0])])
def test_parts_are_nearly_equal_and_none_is_empty_unless_the_share_is(count, pieces, sizes):
    parts = list(batch_of(count, 10).parts(pieces))
    assert [part.count for part in parts] == sizes
    assert torch.equal(torch.cat([part.targets for part in parts]), torch.arange(count))


def test_weighted_means_of_all_parts_sum_to_the_mean_over_the_step():
    values = torch.rand(11, 2, dtype=torch.float64)
    shares = [Batch(values[r::3], torch.zeros(len(values[r::3])), 11, 0, 0, False) for r in range(3)]
    mean = sum(part.inputs.mean(0) * part.weight for share in shares for part in share.parts(2))
    torch.testing.assert_close(mean, values.mean(0))


def test_moving_to_the_device_it_is_on_copies_nothing():
    batch = batch_of(3, 3)
    assert batch.to(torch.device("cpu")) is batch
