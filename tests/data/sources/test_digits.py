import hashlib

import pytest
import torch

from volary.data.sources.digits import Digits
from volary.errors import SettingError


def test_every_fifth_of_1797_digits_is_for_validation():
    source = Digits()
    source.check()
    train, test = source.open("train"), source.open("test")
    assert (len(train), len(test)) == (source.count("train"), source.count("test")) == (1437, 360)
    assert train.classes == test.classes == 10


def test_every_class_is_in_both_parts():
    for split in ("train", "test"):
        assert set(Digits().open(split).targets.tolist()) == set(range(10))


def test_digits_are_enlarged_within_their_border_and_scaled_to_one():
    inputs, targets = Digits().open("train").fetch(torch.arange(64))
    assert (inputs.shape, inputs.dtype, targets.dtype) == ((64, 1, 28, 28), torch.float32, torch.int64)
    assert inputs.min() == 0
    assert 0.9 < inputs.max() <= 1
    assert not inputs[:, :, :6].any()


def test_digits_without_border_at_size_8_are_the_published_ones():
    source = Digits(size=8, border=0)
    images = torch.zeros(1797, 8, 8)
    validation = torch.arange(1797) % 5 == 0
    for split, chosen in (("train", ~validation), ("test", validation)):
        samples = source.open(split)
        images[chosen] = samples.fetch(torch.arange(len(samples)))[0].squeeze(1)
    stored = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in images.shape)
    pixels = (images * 16).round().to(torch.uint8).numpy().tobytes()
    assert hashlib.sha256(stored + pixels).hexdigest().startswith("359cd13f0f514122")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"size": 19}, "size is 19; accepted: 20 (8 and two borders) to 512"),
        ({"border": -1}, "border is -1; accepted: 0 or more"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, sentence):
    with pytest.raises(SettingError) as problem:
        Digits(**settings)
    assert str(problem.value) == sentence
