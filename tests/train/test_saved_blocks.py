"""Ranks save blocks of tensors: any other cut, and a process that has all, read the same values."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from volary.errors import RunError
from volary.exchange.gradients.plan import values_in
from volary.run.checkpoints import Manifest
from volary.sharding.blocks import TensorBlock, cut_evenly
from volary.sharding.ranges import Range
from volary.train.state.optimizer_state import OptimizerState
from volary.train.state.part_state import PartState
from volary.train.state.weights import SavedWeights, TensorSlice, load_weights, weights_content, weights_file

WHOLE = torch.arange(60.0).view(10, 6)


def written(folder, dim, ranks):
    contents = []
    for rank, block in enumerate(cut_evenly("weight", WHOLE.shape, dim, ranks)):
        own = {"bias": torch.ones(6)} if rank + 1 == ranks else {}
        contents.append(weights_content(own, blocks={block: block.taken_from(WHOLE)}))
    return saved_as(folder, contents)


def saved_as(folder, contents):
    files = {weights_file(f"worker-{rank}"): "" for rank in range(len(contents))}
    for name, content in zip(files, contents, strict=True):
        with (folder / name).open("wb") as file:
            content(file)
    return SavedWeights(folder, Manifest(format=1, step=1, world_size=len(contents), files=files))


@pytest.mark.parametrize("dim", [0, 1])
def test_weights_are_read_whole_by_rows_or_columns_and_by_runs_of_values(tmp_path, dim):
    saved = written(tmp_path, dim, 4)
    assert sorted(saved) == ["bias", "weight"] and saved.whole("weight").equal(WHOLE)
    for ranks, other in ((4, dim), (3, dim), (4, 1 - dim)):
        for block in cut_evenly("weight", WHOLE.shape, other, ranks):
            assert saved.block(block).equal(block.taken_from(WHOLE))
    assert saved.values(Range("weight", 7, 31), WHOLE).equal(WHOLE.flatten()[7:31])
    network = nn.Linear(10, 6)
    network.weight.data = torch.zeros(10, 6)
    load_weights(network, saved)
    assert network.weight.equal(WHOLE) and network.bias.equal(torch.ones(6))
    with pytest.raises(RunError, match=r"the checkpoint's weight is \(10, 6\); the network's is \(6, 10\)"):
        load_weights(nn.Linear(10, 6), saved)


def test_too_few_blocks_are_refused(tmp_path):
    saved = written(tmp_path, 0, 4)
    short = {name: "" for name in saved_files(tmp_path) if name != weights_file("worker-2")}
    saved = SavedWeights(tmp_path, Manifest(format=1, step=1, world_size=4, files=short))
    with pytest.raises(RunError, match="other blocks of weight than make it whole"):
        saved.whole("weight")


OVERLAPPING = [TensorBlock("weight", tuple(WHOLE.shape), 0, (span,)) for span in ((0, 4), (2, 8))]


def test_blocks_that_overlap_are_refused_though_they_have_as_many_values_as_the_whole(tmp_path):
    contents = [weights_content({}, blocks={block: block.taken_from(WHOLE)}) for block in OVERLAPPING]
    with pytest.raises(RunError, match="other blocks of weight than make it whole"):
        saved_as(tmp_path, contents).whole("weight")


def test_slices_that_overlap_are_refused_of_tensors_and_of_blocks(tmp_path):
    parts = [Range("weight", start, end) for start, end in ((0, 40), (20, 60))]
    slices = [TensorSlice(part, values_in(part, WHOLE), WHOLE) for part in parts]
    with pytest.raises(RunError, match="has some values of weight more than once"):
        saved_as(tmp_path, [weights_content({}, [one]) for one in slices])
    (all_of_it,) = cut_evenly("weight", WHOLE.shape, 0, 1)
    runs = [Range("weight", start, end) for start, end in ((0, 30), (20, 50))]
    slices = [TensorSlice(run, values_in(run, WHOLE), WHOLE, all_of_it) for run in runs]
    with pytest.raises(RunError, match=r"other slices of weight.* than make it whole"):
        saved_as(tmp_path, [weights_content({}, [one]) for one in slices]).whole("weight")


def saved_files(folder):
    return sorted(file.name for file in folder.iterdir())


def state_of(dim, ranks):
    """State of blocks as ranks make it, in runs of values of each block."""
    parts = []
    for block in cut_evenly("weight", WHOLE.shape, dim, ranks):
        own, middle = block.taken_from(WHOLE).flatten(), block.size // 2
        for start, end in ((middle, block.size), (0, middle)):
            each = {"exp_avg": own[start:end].clone()}
            parts.append(PartState(Range("weight", start, end), each, {"step": torch.tensor(3.0)}, block))
    return OptimizerState.from_plain(OptimizerState(parts).plain())


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("ranks", [2, 3])
def test_an_optimiser_s_state_is_read_whole_and_by_other_blocks(dim, ranks):
    whole = Range("weight", 0, 60)
    assert state_of(dim, 3).of(whole).each["exp_avg"].equal(WHOLE.flatten())
    assert state_of(dim, 3).of(Range("weight", 5, 9)).each["exp_avg"].equal(WHOLE.flatten()[5:9])
    for other in (dim, 1 - dim):
        for block in cut_evenly("weight", WHOLE.shape, other, ranks):
            own = state_of(dim, 3).within({"weight": block})
            found = own.of(Range("weight", 0, block.size))
            assert found.each["exp_avg"].equal(block.taken_from(WHOLE).flatten()) and found.whole["step"] == 3
            again = own.cut({"weight": block}).within({"weight": block}).of(Range("weight", 0, block.size))
            assert again.each["exp_avg"].equal(found.each["exp_avg"])


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([(0, 20), (30, 60)], "covers some of the values 0 to 60 of weight, and not all"),
        ([(0, 30), (20, 50), (50, 60)], "has some of the values 0 to 60 of weight more than once"),
        ([(0, 20), (10, 20), (30, 60)], "has some of the values 0 to 60 of weight more than once"),
    ],
)
def test_state_of_runs_that_overlap_or_leave_gaps_is_refused(runs, said):
    parts = [PartState(Range("weight", low, high), {"sum": torch.ones(high - low)}, {}) for low, high in runs]
    with pytest.raises(RunError, match=said):
        OptimizerState(parts).of(Range("weight", 0, 60))


def test_state_of_blocks_that_overlap_is_refused():
    parts = [PartState(Range("weight", 0, one.size), {"sum": torch.ones(one.size)}, {}, one) for one in OVERLAPPING]
    with pytest.raises(RunError, match="other blocks of weight than make it whole"):
        OptimizerState(parts).of(Range("weight", 0, 60))


def test_state_of_some_blocks_alone_is_refused():
    plain = [one for one in state_of(0, 3).plain() if one[5][2] != [[0, 3]]]
    with pytest.raises(RunError, match="other blocks of weight than make it whole"):
        OptimizerState.from_plain(plain).of(Range("weight", 0, 60))
