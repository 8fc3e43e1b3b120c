"""Every row once and in order, whatever the workers, the sizes of batches and what cannot be read."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from volary.data.unlabelled.unlabelled import Unlabelled
from volary.errors import CorruptSample
from volary.network.zoo.layers import LayerNetwork
from volary.train.predicting.batch_sizes import BatchSizes
from volary.train.predicting.layer_output import layer_output
from volary.train.predicting.rows import Rows, share_of

CPU = torch.device("cpu")


@dataclass
class Numbers:
    """Sample i is i; some cannot be read."""

    count: int
    bad: frozenset[int]
    classes: int | None = None
    input_shape: tuple[int, ...] = (1,)
    input_dtype: torch.dtype = torch.float32

    def __len__(self) -> int:
        return self.count

    def fetch(self, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for index in indices.tolist():
            if index in self.bad:
                problem = CorruptSample(f"row {index} is damaged")
                problem.index = index
                raise problem
        return indices.unsqueeze(1).float(), torch.zeros_like(indices)


@dataclass
class Twice:
    """Predicts twice its input; on a device whose memory lasts for `most` rows."""

    most: int = 10**6
    device: torch.device = CPU
    calls: list[int] = field(default_factory=list)

    def predict(self, inputs: torch.Tensor, positions: torch.Tensor, *, last: bool) -> torch.Tensor:
        self.calls.append(len(inputs))
        if len(inputs) > self.most:
            raise torch.OutOfMemoryError
        return 2 * inputs


@given(st.integers(0, 20), st.sets(st.integers(0, 19)), st.integers(1, 7), st.integers(0, 9), st.integers(1, 5))
def test_each_row_is_predicted_once_and_in_order(count, bad, workers, batch_size, most):
    predictor: Any = Twice(most if batch_size == 0 else 10**6)
    found: list[float] = []
    lost: dict[int, str] = {}
    for rank in range(workers):
        share = share_of(count, rank, workers)
        rows = Rows(predictor, Unlabelled(Numbers(count, frozenset(bad))), share, batch_size)
        parts = list(rows)
        got = torch.cat([part.values for part in parts])[:, 0].tolist() if parts else [float("nan")] * len(share)
        assert [part.first for part in parts][:1] == ([share.start] if parts else [])
        assert len(got) == len(share)
        found += got
        lost |= rows.lost
    assert len(found) == count
    assert set(lost) == {row for row in bad if row < count}
    assert all(found[row] == 2 * row for row in range(count) if row not in lost)
    assert all(found[row] != found[row] for row in lost)  # NaN


@given(st.sampled_from([1, 2, 8, 64, 512]), st.integers(1, 2000))
def test_the_size_of_batches_is_the_one_up_to_which_samples_become_quicker(best, rows):
    sizes = BatchSizes(0, rows)
    for _ in range(100):
        size = sizes.size
        sizes.took(size, max(best, size) * 1e-3 if size >= best else best * 1e-3)  # a batch below `best` takes as long
    assert sizes.settled
    assert sizes.size == min(best, 1 << (rows.bit_length() - 1))


@pytest.mark.parametrize(("device", "size"), [("cpu", 64), ("cuda", 1)])
def test_on_a_cpu_what_else_the_machine_computes_decides_nothing_and_on_a_gpu_the_time_that_passes(
    monkeypatch, device, size
):
    passed_s = {"thread_time": 0.0, "perf_counter": 0.0}
    for clock in passed_s:
        monkeypatch.setattr(time, clock, lambda clock=clock: passed_s[clock])

    class Disturbed(Twice):
        def predict(self, inputs, positions, *, last):
            passed_s["thread_time"] += 1.0
            passed_s["perf_counter"] += 1.0 + len(inputs) ** 2
            return super().predict(inputs, positions, last=last)

    rows = Rows(Disturbed(device=torch.device(device)), Unlabelled(Numbers(500, frozenset())), range(64), 0)
    for _ in range(40):
        list(rows)
    assert (rows.sizes.size, rows.sizes.settled) == (size, True)


def test_a_size_that_was_asked_for_stays():
    sizes = BatchSizes(7, 100)
    sizes.took(7, 1.0)
    assert (sizes.size, sizes.settled, sizes.smaller()) == (7, True, False)


def test_a_layer_is_taken_before_another_writes_into_it_and_an_edge_as_the_last_one_leaves_it():
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    inputs = torch.randn(5, 3)
    torch.testing.assert_close(layer_output(module, "0")(inputs), module[0](inputs))
    assert (layer_output(module, "0")(inputs) < 0).any()
    relu = {"relu": {"name": "act", "inputs": "fc", "edges": "fc"}}
    graph = LayerNetwork(layers=[{"linear": {"name": "fc", "outputs": 4}}, relu]).build((3,), 0).eval()
    torch.testing.assert_close(layer_output(graph, "fc")(inputs), graph.get_submodule("fc")(inputs).relu())
