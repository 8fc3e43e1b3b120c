"""Files in the format of MNIST: written here, whole and broken in each way."""

import gzip
import struct
from pathlib import Path

import pytest
import torch

from volary.data.formats.idx_file import IdxFile
from volary.data.sources.idx import Idx
from volary.errors import DataError, SettingError


def idx_bytes(values: torch.Tensor) -> bytes:
    return struct.pack(f">BBBB{values.dim()}I", 0, 0, 8, values.dim(), *values.shape) + values.numpy().tobytes()


def write(path: Path, content: bytes) -> None:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.fixture
def pixels() -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    return {
        name: torch.randint(0, 256, (count, 5, 4), dtype=torch.uint8, generator=random)
        for name, count in (("train", 30), ("t10k", 12))
    }


@pytest.fixture(params=["", ".gz"], ids=["plain", "gz"])
def ending(request) -> str:
    return request.param


@pytest.fixture
def folder(tmp_path, pixels, ending) -> Path:
    for name, images in pixels.items():
        write(tmp_path / f"{name}-images-idx3-ubyte{ending}", idx_bytes(images))
        labels = torch.arange(len(images)).remainder(3).to(torch.uint8)
        write(tmp_path / f"{name}-labels-idx1-ubyte{ending}", idx_bytes(labels))
    return tmp_path


def refused(source: Idx) -> str:
    with pytest.raises(DataError) as problem:
        source.check()
    return str(problem.value)


def test_pixels_become_float_between_0_and_1(folder, pixels):
    source = Idx(folder=str(folder))
    source.check()
    samples = source.open("train")
    inputs, targets = samples.fetch(torch.tensor([7, 2]))
    torch.testing.assert_close(inputs, pixels["train"][[7, 2]].unsqueeze(1) / 255)
    assert targets.tolist() == [1, 2]
    assert (len(samples), samples.classes, samples.input_shape) == (30, 3, (1, 5, 4))
    assert (inputs.dtype, targets.dtype) == (samples.input_dtype, torch.int64) == (torch.float32, torch.int64)
    assert (source.count("train"), source.count("test"), len(source.open("test"))) == (30, 12, 12)


def test_mean_and_std_normalise(folder, pixels):
    inputs, _ = Idx(folder=str(folder), mean=0.5, std=0.25).open("test").fetch(torch.arange(12))
    torch.testing.assert_close(inputs, (pixels["t10k"].unsqueeze(1) / 255 - 0.5) / 0.25)


def test_nothing_fetched_has_the_right_shape(folder):
    inputs, targets = Idx(folder=str(folder)).open("train").fetch(torch.arange(0))
    assert (inputs.shape, targets.shape) == ((0, 1, 5, 4), (0,))
    assert (inputs.dtype, targets.dtype) == (torch.float32, torch.int64)


def test_unpacked_file_is_preferred_to_its_gz(folder, pixels):
    write(folder / "train-images-idx3-ubyte", idx_bytes(255 - pixels["train"]))
    write(folder / "train-images-idx3-ubyte.gz", idx_bytes(pixels["train"]))
    inputs, _ = Idx(folder=str(folder)).open("train").fetch(torch.tensor([0]))
    torch.testing.assert_close(inputs, (255 - pixels["train"][:1].unsqueeze(1)) / 255)


def test_file_called_gz_that_is_none_is_refused(folder, ending):
    path = folder / "train-labels-idx1-ubyte.gz"
    (folder / f"train-labels-idx1-ubyte{ending}").unlink()
    path.write_bytes(b"plain bytes")
    assert refused(Idx(folder=str(folder))).startswith(f"{path}: cannot be read (Not a gzipped file")


def test_truncated_file_names_expected_and_found_bytes(folder, pixels, ending):
    path = folder / f"train-images-idx3-ubyte{ending}"
    write(path, idx_bytes(pixels["train"])[:-100])
    sentence = f"{path}: truncated: its header says 30x5x4, 616 bytes in all; found 516"
    assert refused(Idx(folder=str(folder))) == sentence
    with pytest.raises(DataError, match="616 bytes in all; found 516"):
        Idx(folder=str(folder)).open("train")


@pytest.mark.parametrize("ending", [".gz"], indirect=True)
def test_gz_that_was_cut_names_what_came_out_of_it(folder, pixels, ending):
    path = folder / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-200])
    assert f"{path}: truncated: its header says 30x5x4, 616 bytes in all; found " in refused(Idx(folder=str(folder)))


def test_gz_of_several_members_is_whole(folder, pixels, ending):
    content = idx_bytes(pixels["train"])
    (folder / f"train-images-idx3-ubyte{ending}").unlink()
    path = folder / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(content[:300]) + gzip.compress(content[300:]))
    Idx(folder=str(folder)).check()
    assert len(Idx(folder=str(folder)).open("train")) == 30


@pytest.mark.parametrize("ending", [".gz"], indirect=True)
def test_flipped_byte_in_a_gz_is_found_at_open(folder, ending):
    path = folder / "train-images-idx3-ubyte.gz"
    content = bytearray(path.read_bytes())
    content[-8] ^= 1  # of the checksum
    path.write_bytes(content)
    with pytest.raises(DataError, match="damaged"):
        Idx(folder=str(folder)).open("train")


def test_longer_file_than_its_header_says_is_refused(folder, pixels, ending):
    path = folder / f"train-images-idx3-ubyte{ending}"
    write(path, idx_bytes(pixels["train"]) + b"more")
    assert refused(Idx(folder=str(folder))) == (
        f"{path}: its header says 30x5x4, 616 bytes in all; found more than that"
    )


def test_images_and_labels_must_be_as_many(folder, ending):
    write(folder / f"t10k-labels-idx1-ubyte{ending}", idx_bytes(torch.zeros(11, dtype=torch.uint8)))
    assert refused(Idx(folder=str(folder))) == (
        f"{folder}/t10k-images-idx3-ubyte{ending}: 12 images, but t10k-labels-idx1-ubyte{ending} has 11 labels; "
        "accepted: as many of one as of the other"
    )


def test_other_magic_is_named_in_bytes(folder, pixels, ending):
    path = folder / f"train-images-idx3-ubyte{ending}"
    write(path, b"\x89PNG" + idx_bytes(pixels["train"])[4:])
    assert refused(Idx(folder=str(folder))) == (
        f"{path}: starts with 89 50 4e 47; accepted: 00 00 08 03, an IDX file of unsigned bytes with 3 dimensions"
    )


def test_header_cut_short_is_truncated(folder, ending):
    path = folder / f"train-labels-idx1-ubyte{ending}"
    write(path, b"\0\0\x08")
    assert refused(Idx(folder=str(folder))) == f"{path}: truncated: 3 bytes; its header alone has 8"


def test_empty_file_and_empty_data_set_are_refused(folder, ending):
    path = folder / f"train-images-idx3-ubyte{ending}"
    path.write_bytes(b"")
    assert refused(Idx(folder=str(folder))) == (
        f"{path}: empty (0 bytes); accepted: an IDX file of unsigned bytes, also as .gz"
    )
    write(path, idx_bytes(torch.zeros((0, 5, 4), dtype=torch.uint8)))
    assert refused(Idx(folder=str(folder))) == (f"{path}: empty: its header says 0x5x4; accepted: at least one sample")


def test_missing_folder_and_missing_file_are_named(folder, tmp_path, ending):
    assert refused(Idx(folder="nowhere")) == "nowhere: there is no such folder; accepted: a folder of IDX files"
    (folder / f"t10k-labels-idx1-ubyte{ending}").unlink()
    assert refused(Idx(folder=str(folder))) == (
        f"{folder}: has no file t10k-labels*; accepted: t10k-labels-idx?-ubyte, with or without .gz"
    )


def test_test_images_of_another_size_are_refused(folder, ending):
    write(folder / f"t10k-images-idx3-ubyte{ending}", idx_bytes(torch.zeros((12, 6, 6), dtype=torch.uint8)))
    assert "training and test images differ in size" in refused(Idx(folder=str(folder)))


def test_label_beyond_the_classes_is_refused(folder, ending):
    path = folder / f"t10k-labels-idx1-ubyte{ending}"
    write(path, idx_bytes(torch.full((12,), 9, dtype=torch.uint8)))
    with pytest.raises(DataError) as problem:
        Idx(folder=str(folder)).open("test")
    assert str(problem.value) == f"{path}: sample 0 has the label 9; accepted: 0 to 2 (3 classes)"
    assert Idx(folder=str(folder), classes=10).open("test").classes == 10


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"folder": "x", "std": 0.0}, "std is 0.0; accepted: above 0"),
        ({"folder": "x", "classes": 0}, "classes is 0; accepted: 1 to 256"),
        ({"folder": ""}, "folder is empty; accepted: the folder that holds train-images* and its three fellows"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, sentence):
    with pytest.raises(SettingError) as problem:
        Idx(**settings)
    assert str(problem.value) == sentence


def test_gz_whose_header_promises_many_times_its_size_is_refused_by_it(tmp_path):
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(struct.pack(">BBBB3I", 0, 0, 8, 3, 4_000_000, 28, 28) + bytes(20 * 2**20)))
    with pytest.raises(DataError) as problem:
        IdxFile.at(path, rank=3)
    assert str(problem.value) == (
        f"{path}: unpacks to more than 16 MiB, and to more than 100 times its size; "
        "accepted: 3136000016 bytes, as its header promises, in a file without .gz"
    )


def test_plain_file_is_not_read_where_its_length_is_not_what_its_header_promises(tmp_path, monkeypatch):
    path = tmp_path / "train-images-idx3-ubyte"
    with path.open("wb") as file:
        file.write(struct.pack(">BBBB3I", 0, 0, 8, 3, 4_000_000, 28, 28))
        file.truncate(2**31)  # of holes
    monkeypatch.setattr(IdxFile, "_content", lambda _: pytest.fail("it was read"))
    with pytest.raises(
        DataError, match="truncated: its header says 4000000x28x28, 3136000016 bytes in all; found 2147483648"
    ):
        IdxFile.at(path, rank=3).read()
