"""Promises of each transform, by listing the room, and the effect of each."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from volary.data.feed import Feed
from volary.data.sources.images import Images
from volary.data.transforms import ROOM
from volary.data.transforms.centre_crop import CentreCrop
from volary.data.transforms.colour_jitter import ColourJitter
from volary.data.transforms.flip import Flip
from volary.data.transforms.mean_image import MeanImage
from volary.data.transforms.mean_image import _mean as mean_of
from volary.data.transforms.random_crop import RandomCrop
from volary.data.transforms.random_resized_crop import RandomResizedCrop
from volary.data.transforms.resize import Resize
from volary.errors import DataError, SettingError
from volary.sharding.samples import SampleShare

PAGE = Path(__file__).parents[3] / "docs" / "data.md"
SMALL = {"size": 8, "file": Path("mean.npy")}
MEAN = np.random.default_rng(1).random((3, 20, 30), dtype=np.float32)


@pytest.fixture(autouse=True)
def mean_image():
    np.save("mean.npy", MEAN)
    mean_of.cache_clear()


def made(name: str):
    transform = ROOM.load(name)
    return transform(**{key: value for key, value in SMALL.items() if key in transform.__dataclass_fields__})


def image(channels: int = 3, height: int = 20, width: int = 30) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=np.uint8)


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("name", ROOM.names())
def test_transform_has_a_row_with_its_settings_in_the_docs(name):
    (row,) = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{name}` |")]
    assert [field.name for field in dataclasses.fields(ROOM.load(name)) if f"`{field.name}`" not in row] == []


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ROOM.names())
def test_an_image_becomes_an_image_and_the_given_one_stays(name, channels):
    np.save("mean.npy", MEAN[:channels])
    given = image(channels)
    before = given.copy()
    given.flags.writeable = False
    for seed in range(8):
        found = made(name)(given, random(seed))
        assert found.dtype == (np.float32 if name == "mean_image" else np.uint8)
        assert (found.ndim, found.shape[2]) == (3, channels)
        np.testing.assert_array_equal(given, before)


@pytest.mark.parametrize("name", ROOM.names())
def test_what_is_random_is_the_generators_and_what_says_that_it_never_varies_does_not(name):
    transform, given = made(name), image()
    alike = [transform(given, random(3)) for _ in range(2)]
    np.testing.assert_array_equal(*alike)
    different = {transform(given, random(seed)).tobytes() for seed in range(16)}
    assert (len(different) > 1) == transform.varies


def test_a_mean_image_is_taken_off_each_pixel_and_crops_and_flips_follow():
    given = image()
    found = MeanImage(file=Path("mean.npy"))(given, random())
    np.testing.assert_array_equal(found, given.astype(np.float32) - MEAN.transpose(1, 2, 0))
    cropped = RandomCrop(size=8)(found, random(3))
    top, left = (int(one) for one in np.argwhere((found == cropped[0, 0]).all(2))[0])
    np.testing.assert_array_equal(cropped, found[top : top + 8, left : left + 8])
    with pytest.raises(DataError, match=r"is not of bytes any more; accepted: mean_image after"):
        Resize(size=8)(found, random())
    with pytest.raises(DataError, match=r"20x20 pixels and has 3 channels; the mean image mean\.npy has 30x20 pixels"):
        MeanImage(file=Path("mean.npy"))(given[:, :20], random())


def test_a_number_for_each_channel_is_a_mean_image_too_and_other_files_are_refused():
    np.save("three.npy", np.float32([1, 2, 3]))
    given = image()
    found = MeanImage(file=Path("three.npy"))(given, random())
    np.testing.assert_array_equal(found, given.astype(np.float32) - np.float32([1, 2, 3]))
    Path("words.txt").write_text("no image")
    for name, sentence in (("words.txt", "is no mean image of Caffe"), ("none.npy", "No such file")):
        with pytest.raises(DataError, match=sentence):
            MeanImage(file=Path(name))(given, random())


def test_resize_keeps_the_shape_of_the_image():
    assert Resize(size=8)(image(), random()).shape == (8, 12, 3)
    given = image()
    assert Resize(size=20)(given, random()) is given


def test_centre_crop_is_the_middle_and_refuses_what_is_smaller():
    given = image()
    np.testing.assert_array_equal(CentreCrop(size=10)(given, random()), given[5:15, 10:20])
    with pytest.raises(DataError, match="is 30x20 pixels; accepted by centre_crop: at least 21x21"):
        CentreCrop(size=21)(given, random())


def test_random_crop_comes_from_everywhere_and_its_border_is_black():
    given = np.arange(1, 17, dtype=np.uint8).reshape(4, 4, 1)
    bordered = np.pad(given, ((2, 2), (2, 2), (0, 0)))
    windows = {bordered[y : y + 4, x : x + 4].tobytes() for y in range(5) for x in range(5)}
    found = {RandomCrop(size=4, padding=2)(given, random(seed)).tobytes() for seed in range(400)}
    assert found == windows
    with pytest.raises(DataError, match="is 4x4 pixels; accepted by random_crop: at least 5x5"):
        RandomCrop(size=7, padding=1)(given, random())


def test_random_resized_crop_keeps_to_its_bounds():
    crop = RandomResizedCrop(size=8, area=(0.25, 0.5), shape=(0.5, 2.0))
    for seed in range(200):
        left, top, right, bottom = crop._box(100, 200, random(seed))
        assert 0 <= left < right <= 200
        assert 0 <= top < bottom <= 100
        assert 0.24 <= (right - left) * (bottom - top) / 20_000 <= 0.51
        assert 0.49 <= (right - left) / (bottom - top) <= 2.05
    assert RandomResizedCrop(size=8, shape=(50.0, 60.0))._box(30, 20, random()) == (0, 5, 20, 25)


def test_flip_is_of_its_share():
    given = image()
    for vertical, expected in ((False, given[:, ::-1]), (True, given[::-1])):
        np.testing.assert_array_equal(Flip(share=1.0, vertical=vertical)(given, random()), expected)
        np.testing.assert_array_equal(Flip(share=0.0, vertical=vertical)(given, random()), given)
    flipped = sum(not np.array_equal(Flip()(given, random(seed)), given) for seed in range(400))
    assert 150 < flipped < 250


def test_colour_jitter_changes_what_it_says():
    grey = np.full((4, 4, 3), 100, dtype=np.uint8)
    lighter = {int(ColourJitter(contrast=0, saturation=0)(grey, random(seed))[0, 0, 0]) for seed in range(99)}
    assert 60 <= min(lighter) < 80
    assert 120 < max(lighter) <= 140
    unchanged = ColourJitter(brightness=0, contrast=0, saturation=1.0, hue=0.5)(grey, random())
    np.testing.assert_array_equal(unchanged, grey)  # grey has no hue
    red = np.zeros((2, 2, 3), dtype=np.uint8)
    red[..., 0] = 200
    turned = ColourJitter(brightness=0, contrast=0, saturation=0, hue=0.5)(red, random(1))
    assert turned.max() >= 199
    assert turned[0, 0, 0] < 200 or turned[0, 0].sum() > 200


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (lambda: Resize(size=0), "size is 0; accepted: 1 to 4096"),
        (lambda: RandomCrop(padding=-1), "padding is -1; accepted: 0 to 4096"),
        (lambda: Flip(share=2.0), "share is 2.0; accepted: 0 to 1"),
        (lambda: ColourJitter(hue=0.6), "hue is 0.6; accepted: 0 to 0.5"),
        (
            lambda: RandomResizedCrop(area=(0.5, 0.2)),
            "area is (0.5, 0.2); accepted: two shares, above 0 up to 1, the smaller one first",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(made, sentence):
    with pytest.raises(SettingError) as problem:
        made()
    assert str(problem.value) == sentence


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for split in ("train", "test"):
        for number in range(24):
            path = tmp_path / split / "ab"[number % 2] / f"{number:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image(3, 12 + number % 3, 14)).save(path)
    return tmp_path


def inputs_of(
    folder: Path, rank: int = 0, world: int = 1, epochs: int = 2, **settings
) -> dict[tuple[int, int], torch.Tensor]:
    """Each sample's values in each epoch."""
    samples = Images(folder=folder, transforms=(Resize(size=10), RandomCrop(size=8), Flip()), **settings).open("train")
    feed = Feed(samples, 6, share=SampleShare(rank, world))
    feed.limit(epochs * (feed.steps_per_epoch or 0))
    return {(batch.epoch, feed.number(place)): batch.inputs[place] for batch in feed for place in range(batch.count)}


def test_a_sample_is_the_same_in_an_epoch_on_any_number_of_workers_and_another_one_in_the_next(folder):
    alone = inputs_of(folder)
    assert len(alone) == 48
    for cache_mb in (0, 10):
        for rank in range(2):
            for key, found in inputs_of(folder, rank, 2, cache_mb=cache_mb).items():
                torch.testing.assert_close(found, alone[key], rtol=0, atol=0)
    changed = [not torch.equal(alone[0, number], alone[1, number]) for number in range(24)]
    assert sum(changed) > 12
    assert any(not torch.equal(found, alone[key]) for key, found in inputs_of(folder, seed=5).items())


def test_validation_data_has_its_own_transforms(folder):
    source = Images(folder=folder, transforms=(RandomCrop(size=8),), test_transforms=(CentreCrop(size=6),))
    assert source.open("train").input_shape == (3, 8, 8)
    assert source.open("test").input_shape == (3, 6, 6)
    expected = torch.from_numpy(image(3, 12, 14)[3:9, 4:10].copy()).permute(2, 0, 1) / 255
    torch.testing.assert_close(source.open("test").fetch(torch.tensor([0]))[0][0], expected)


def test_samples_have_the_mean_image_taken_off_before_they_are_cropped_and_scaled(folder):
    steps = (CentreCrop(size=12), MeanImage(file=Path("mean.npy")), CentreCrop(size=6))
    np.save("mean.npy", MEAN[:, :12, :12])
    for cache_mb in (0, 10):
        samples = Images(folder=folder, transforms=steps, std=(0.5,), cache_mb=cache_mb).open("train")
        expected = image(3, 12, 14)[:, 1:13] - MEAN[:, :12, :12].transpose(1, 2, 0)
        expected = torch.from_numpy(expected[3:9, 3:9].transpose(2, 0, 1).copy()) / (255 * 0.5)
        torch.testing.assert_close(samples.fetch(torch.tensor([0]))[0][0], expected, rtol=1e-5, atol=1e-6)


def test_an_image_that_a_transform_cannot_be_done_to_is_named(folder):
    samples = Images(folder=folder, transforms=(CentreCrop(size=13),))
    with pytest.raises(DataError, match=r"a/00.png: is 14x12 pixels; accepted by centre_crop: at least 13x13"):
        samples.open("train")


def test_a_random_crop_that_is_smaller_than_its_border_is_what_numpy_cuts():
    given, crop = image(3, 4, 5), RandomCrop(size=3, padding=7)
    bordered = np.pad(given, ((7, 7), (7, 7), (0, 0)))
    seen = set()
    for seed in range(60):
        drawn = random(seed)
        top, left = (int(drawn.integers(0, most, endpoint=True)) for most in (15, 16))
        np.testing.assert_array_equal(crop(given, random(seed)), bordered[top : top + 3, left : left + 3])
        seen.add(top + 3 <= 7 or left + 3 <= 7)
    assert seen == {True, False}, "of the border alone, too"


@pytest.mark.parametrize(("before", "seen"), [((), "14x12"), ((Flip(),), "14x12"), ((RandomCrop(size=6),), "6x6")])
def test_an_image_that_is_smaller_than_a_crop_is_named_with_what_makes_it_larger(folder, before, seen):
    with pytest.raises(DataError) as problem:
        Images(folder=folder, transforms=(*before, RandomCrop(size=24, padding=2))).open("train")
    assert str(problem.value) == (
        f"{folder}/train/a/00.png: is {seen} pixels; accepted by random_crop: at least 20x20, as the setting "
        "`size` or a `resize` among the transforms before it makes them"
    )


def test_a_callable_of_ones_own_is_a_transform_and_its_mistake_is_no_corrupt_sample(folder):
    from volary.session import Session

    Path("mine.py").write_text(
        "import numpy as np\n"
        "def darker(image, random):\n    return image // 2\n"
        "class Less:\n"
        "    def __init__(self, by): self.by = by\n"
        "    def __call__(self, image, random): return np.maximum(image, self.by) - np.uint8(self.by)\n"
        "def broken(image, random):\n    raise KeyError('mine')\n"
        "def floats(image, random):\n    return image / 2.0\n"
    )

    def samples(*transforms: object):
        source = {"name": "images", "folder": str(folder), "size": 8, "transforms": list(transforms)}
        return Session(network="lenet", data={"source": source}).data.source.open("train")

    plain = samples().fetch(torch.arange(24))[0]
    dark = samples("mine.py:darker", {"name": "mine.py:Less", "by": 20}).fetch(torch.arange(24))[0]
    expected = ((255 * plain).round().to(torch.uint8) // 2).clamp(min=20) - 20
    torch.testing.assert_close((255 * dark).round().to(torch.uint8), expected, rtol=0, atol=0)
    with pytest.raises(KeyError, match="mine") as problem:
        samples("mine.py:broken")
    with pytest.raises(DataError, match=r"mine.py:floats gave float64 \(8, 8, 3\); accepted: an array"):
        samples("mine.py:floats")
    assert problem.type is KeyError
