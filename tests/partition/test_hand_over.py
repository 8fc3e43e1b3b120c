"""Values pass between parts and stages in 16 bits: half the bytes, about the same steps, the same bits everywhere."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn

from _workers import joined
from train._training import Quick, Trained, trained
from volary.comm.groups.layer_group import LayerGroup
from volary.errors import SettingError
from volary.network.layer_graph import layer_graph
from volary.partition import ROOM
from volary.session import Session
from volary.train.holding import layer_uses

STEPS = 4


def wide(name: str, hand_over: str) -> Session:
    partition = {"name": name, "hand_over": hand_over, **({"micro_batches": 2} if name == "pipeline" else {})}
    return Session(
        network={
            "layers": [
                {"linear": {"outputs": 64}},
                "relu",
                {"linear": {"outputs": 48}},
                "relu",
                {"linear": {"outputs": 4}},
            ]
        },
        data={"source": {"name": "synthetic", "shape": [32], "classes": 4, "samples": 128}, "batch_size": 32},
        train={"steps": STEPS, "compare_replicas": "never", "histograms": "never"},
        evaluate={"every": "never"},
        checkpoint={"every": "never"},
        strategy={"workers": 2, "partition": partition},
    )


def summed(rank: int, narrow: str, attempt: int) -> tuple[torch.Tensor, torch.Tensor, LayerGroup]:
    """Sums and gathered values of two ranks, of 7 values each in 64 bits."""
    group = LayerGroup(joined(attempt), narrow)
    own = torch.linspace(0.1 + rank, 3.3, 7, dtype=torch.double)
    return group.added_up(own), group.gathered(own[: 3 + rank], 0, [3, 4]), group


def run(rank: int, world_size: int) -> tuple[dict[tuple[str, str], Trained], list[Any]]:
    sums = []
    for attempt, narrow in enumerate(("", "bf16", "fp16")):
        total, every, group = summed(rank, narrow, 100 + attempt)
        (traffic,) = group.traffic
        sums.append((total, every, traffic.codec, traffic.saved))
    kinds = [(name, kind) for name in ("tensor", "pipeline") for kind in ("exact", "bf16")]
    return {
        (name, kind): trained(rank, world_size, wide(name, kind), f"{name} {kind}", disk=Quick())
        for name, kind in kinds
    }, sums


def test_values_in_16_bits_are_half_the_bytes_and_about_the_same_on_all_workers_alike(workers):
    everyone = workers(2, run)
    for found, sums in everyone:
        for name in ("tensor", "pipeline"):
            exact, narrow = found[name, "exact"], found[name, "bf16"]
            assert narrow.losses == pytest.approx(exact.losses, rel=0.02) and narrow.losses != exact.losses
            assert narrow.rows[-1].sent_bytes < 0.6 * exact.rows[-1].sent_bytes, name
        (total, every, codec, saved), *others = sums
        assert (codec, saved) == ("none", 0)
        for (rounded, gathered, codec, saved), precision, kind in zip(
            others, (2**-7, 2**-10), ("bf16", "fp16"), strict=True
        ):
            assert (codec, saved) == (kind, 0.75), "of 64 bits 16 are left"
            assert rounded.dtype == gathered.dtype == torch.double
            torch.testing.assert_close(rounded, total, rtol=precision, atol=0)
            torch.testing.assert_close(gathered, every, rtol=precision, atol=0)
            assert not rounded.equal(total)
    (_, first), (_, second) = everyone
    assert all(one[0].equal(other[0]) and one[1].equal(other[1]) for one, other in zip(first, second, strict=True))
    assert [one.losses for one in everyone[0][0].values()] == [one.losses for one in everyone[1][0].values()]


@pytest.mark.parametrize("name", ["tensor", "pipeline"])
def test_another_way_to_hand_over_is_refused(name):
    with pytest.raises(SettingError, match=r"hand_over: is 'int8'; accepted: one of: exact, bf16, fp16"):
        wide(name, "int8")
    assert ROOM.load(name)().hand_over == "exact"


@pytest.mark.parametrize("name", ["tensor", "pipeline"])
def test_half_the_bytes_are_predicted_too(name):
    module = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 4))
    uses = layer_uses(layer_graph(module, torch.randn(2, 32), nullcontext()))
    exact, narrow = (ROOM.load(name)(hand_over=kind).part(module, 0, 2) for kind in ("exact", "fp16"))
    assert 0 < exact.passes_bytes(uses, 16) == 2 * narrow.passes_bytes(uses, 16)
