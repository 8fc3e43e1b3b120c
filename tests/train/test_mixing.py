"""Samples that are mixed with others of their batch: as the papers say, and alike for any number of workers."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import one_hot

from train._training import Quick, session, trained
from volary.data.batching.batch import Batch
from volary.errors import SettingError
from volary.train.data.mixed_batch import BatchMixing
from volary.train.mixing import ROOM
from volary.train.mixing.cutmix import CutMix
from volary.train.mixing.mixup import Mixup

DOCS = Path(__file__).parents[2] / "docs" / "training.md"
CLASSES = 5
BOTH = (Mixup(alpha=1.0), CutMix())


def batch(samples: int, *, step: int = 3) -> Batch:
    generator = torch.Generator().manual_seed(samples)
    inputs = torch.rand(samples, 2, 8, 6, generator=generator)
    return Batch(inputs, torch.randint(CLASSES, (samples,), generator=generator), samples, 1, step, False)


@pytest.mark.parametrize("name", ROOM.names())
def test_every_way_to_mix_is_documented(name: str) -> None:
    assert re.search(rf"^\| `{name}` \|", DOCS.read_text(), re.MULTILINE)


@given(st.integers(0, 50))
def test_mixup_is_the_mean_of_a_sample_and_that_half_a_batch_before_with_the_targets_weight(step: int) -> None:
    plain = batch(6, step=step)
    mixed = BatchMixing((Mixup(alpha=1.0),), 1, CLASSES)(plain)
    targets = one_hot(plain.targets, CLASSES).float()
    weight = Random(f"1 1 {step}")
    weight.choice((0,))
    share = weight.betavariate(1.0, 1.0)
    torch.testing.assert_close(mixed.inputs, share * plain.inputs + (1 - share) * plain.inputs.roll(3, 0))
    torch.testing.assert_close(mixed.targets, share * targets + (1 - share) * targets.roll(3, 0))


@given(st.integers(0, 200))
def test_cutmix_gives_targets_the_share_of_the_image_that_stays(step: int) -> None:
    plain = batch(6, step=step)
    mixed = BatchMixing((CutMix(),), 1, CLASSES)(plain)
    stays, foreign = mixed.inputs == plain.inputs, mixed.inputs == plain.inputs.roll(3, 0)
    assert bool((stays | foreign).all())
    targets = one_hot(plain.targets, CLASSES).float()
    share = stays.float().mean().item()
    torch.testing.assert_close(mixed.targets, share * targets + (1 - share) * targets.roll(3, 0))


def test_all_steps_and_seeds_draw_otherwise_and_both_ways_are_used() -> None:
    found = [BatchMixing(BOTH, seed, CLASSES)(batch(6, step=step)) for seed in (1, 2) for step in range(10)]
    assert len({tuple(one.inputs.flatten().tolist()) for one in found}) == 20
    cut = [bool((one.inputs == batch(6).inputs).any()) for one in found]
    assert 0 < sum(cut) < 20


@pytest.mark.parametrize("workers", [2, 3, 4, 6])
def test_shares_of_a_batch_are_mixed_as_the_whole_batch(workers: int) -> None:
    plain, mix = batch(24), BatchMixing(BOTH, 7, CLASSES)
    whole = mix(plain)
    for rank in range(workers):
        own = slice(rank, None, workers)
        part = Batch(plain.inputs[own], plain.targets[own], 24, 1, 3, False)
        assert torch.equal(mix(part).inputs, whole.inputs[own])
        assert torch.equal(mix(part).targets, whole.targets[own])


def test_ignored_targets_have_no_share_and_wrong_ones_are_left_for_the_loss_to_name() -> None:
    plain, mix = batch(4), BatchMixing((Mixup(),), 1, CLASSES)
    plain.targets[0] = -100
    sums = mix(plain).targets.sum(1)
    assert sums[1].item() == sums[3].item() == pytest.approx(1)
    assert (sums[0] + sums[2]).item() == pytest.approx(1)
    plain.targets[1] = CLASSES
    assert mix(plain) is plain


# In runs


def run(folder: str, **more: Any) -> dict[str, torch.Tensor]:
    train = {"steps": 12, "mix": [{"name": "mixup", "alpha": 1.0}], **more.pop("train", {})}
    one = session("Exact", source={"name": "points_of_classes"}, batch_size=12, train=train, **more)
    return trained(0, 1, one, folder, disk=Quick()).parameters


def test_a_mixed_batch_in_parts_trains_as_a_whole_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole, plain = run("whole"), run("plain", train={"mix": []})
    assert not all(torch.equal(plain[name], values) for name, values in whole.items())
    for name, values in run("parts", train={"accumulate": 3}).items():
        torch.testing.assert_close(values, whole[name], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"train": {"mix": ["cutmix"]}},
            "train.mix has cutmix: it takes images (channels, height, width), and the data's",
        ),
        ({"source": {"name": "Sequences"}}, "samples have several classes each; accepted: one class, or numbers"),
        ({"source": {"name": "points"}}, "train.mix: the data does not say how many classes there are"),
        ({"loss": "torch.nn:MultiMarginLoss"}, "which this loss does not take; accepted: loss=cross_entropy"),
    ],
)
def test_what_cannot_be_mixed_is_refused(settings, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {"source": {"name": "points_of_classes"}, "train": {"mix": ["mixup"]}, **settings}
    with pytest.raises(SettingError, match=re.escape(sentence)):
        trained(0, 1, session("Exact", **settings))
