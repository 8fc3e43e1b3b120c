import pytest
import torch

from volary.data.sources import synthetic
from volary.data.sources.synthetic import Synthetic
from volary.errors import SettingError


@pytest.mark.parametrize("kind", ["noise", "blobs", "tokens"])
def test_same_seed_same_samples_other_seed_others(kind):
    shape = (6,) if kind == "tokens" else (2, 3)
    made = [Synthetic(shape=shape, kind=kind, samples=50, seed=seed).open("train") for seed in (4, 4, 5)]
    assert torch.equal(made[0].inputs, made[1].inputs)
    assert not torch.equal(made[0].inputs, made[2].inputs)
    assert not torch.equal(made[0].inputs[:10], Synthetic(shape=shape, kind=kind, seed=4).open("test").inputs[:10])


def test_counts_shapes_and_classes_are_as_set():
    source = Synthetic(shape=(3, 8, 8), classes=7, samples=101)
    source.check()
    train, test = source.open("train"), source.open("test")
    assert (len(train), len(test)) == (source.count("train"), source.count("test")) == (101, 20)
    inputs, targets = train.fetch(torch.tensor([100, 0]))
    assert (inputs.shape, inputs.dtype, train.input_shape, train.classes) == ((2, 3, 8, 8), torch.float32, (3, 8, 8), 7)
    assert targets.max() < 7


def test_more_samples_than_fit_go_through_the_same_again(monkeypatch):
    monkeypatch.setattr(synthetic, "_POOL_BYTES", 16 * 10)
    samples = Synthetic(shape=(4,), samples=10**9).open("train")
    assert (len(samples), len(samples.inputs)) == (10**9, 10)
    inputs, targets = samples.fetch(torch.tensor([999_999_993, 3]))
    assert torch.equal(inputs[0], inputs[1])
    assert targets[0] == targets[1]


def test_blobs_have_the_same_centres_in_both_parts():
    source = Synthetic(shape=(50,), classes=4, samples=1000, kind="blobs")
    train, test = source.open("train"), source.open("test")
    centres = torch.stack([train.inputs[train.targets == label].mean(0) for label in range(4)])
    nearest = torch.cdist(test.inputs, centres).argmin(1)
    assert (nearest == test.targets).float().mean() > 0.95


def test_tokens_go_on_one_step():
    inputs, targets = Synthetic(shape=(9,), classes=20, kind="tokens").open("train").fetch(torch.arange(5))
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert (inputs.dtype, inputs.max() < 20) == (torch.int64, True)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"shape": ()}, "shape is (); accepted: one or more sizes of at least 1"),
        ({"shape": (3, 0)}, "shape is (3, 0); accepted: one or more sizes of at least 1"),
        ({"samples": 0}, "samples is 0; accepted: 1 or more"),
        ({"classes": 0}, "classes is 0; accepted: 1 or more"),
        ({"kind": "x"}, "kind is 'x'; accepted: noise, blobs, tokens"),
        ({"kind": "tokens"}, "shape is (1, 28, 28); accepted with kind tokens: one size, the time steps"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, sentence):
    with pytest.raises(SettingError) as problem:
        Synthetic(**settings)
    assert str(problem.value) == sentence
