"""Class folders of images, as folders and as tars: written here, whole and broken in each way."""

import gzip
import io
import struct
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from volary.data.decoding.images import ImageDecoder
from volary.data.formats import unpacking
from volary.data.sources.images import Images
from volary.errors import DataError, SettingError


def picture(colour: tuple[int, int, int], size: tuple[int, int] = (6, 4), kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, kind)
    return buffer.getvalue()


def colour_of(label: int, number: int) -> tuple[int, int, int]:
    return (40 * label, 10 * number, 7)


def files_of(split: str, count: int) -> dict[str, bytes]:
    return {
        f"{split}/{name}/{number:04}.png": picture(colour_of(label, number))
        for label, name in enumerate(("ant", "bee", "cat"))
        for number in range(count)
    }


def write_folder(root: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def write_tar(path: Path, files: dict[str, bytes], *, extra: tuple[tarfile.TarInfo, ...] = ()) -> None:
    with tarfile.open(path, "w:gz" if path.suffix in (".gz", ".tgz") else "w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        for info in extra:
            tar.addfile(info)


@pytest.fixture(params=["folder", ".tar", ".tar.gz", ".tgz"])
def root(request, tmp_path) -> Path:
    for split, count in (("train", 4), ("test", 2)):
        # not in the order of their names, as a tar may have them
        files = dict(reversed(files_of(split, count).items()))
        if request.param == "folder":
            write_folder(tmp_path, files)
        else:
            write_tar(tmp_path / f"{split}{request.param}", files)
    return tmp_path


@pytest.fixture
def train_tar(tmp_path) -> Path:
    write_folder(tmp_path, files_of("test", 1))
    return tmp_path / "train.tar"


def refused_at_open(folder: Path, **settings) -> str:
    with pytest.raises(DataError) as problem:
        Images(folder=str(folder), **settings).open("train")
    return str(problem.value)


def refused_at_check(folder: Path) -> str:
    with pytest.raises(DataError) as problem:
        Images(folder=str(folder)).check()
    return str(problem.value)


def test_folders_and_tars_give_the_same_samples_by_class_and_name(root):
    source = Images(folder=str(root))
    source.check()
    samples = source.open("train")
    inputs, targets = samples.fetch(torch.arange(12))
    assert (len(samples), samples.classes, samples.input_shape) == (12, 3, (3, 4, 6))
    assert targets.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    expected = torch.tensor([colour_of(label, number) for label in range(3) for number in range(4)]) / 255
    torch.testing.assert_close(inputs, expected.view(12, 3, 1, 1).expand(12, 3, 4, 6))
    assert len(source.open("test")) == 6


@pytest.mark.parametrize("cache_mb", [0, 1])
def test_cached_and_decoded_samples_are_equal(root, cache_mb):
    samples = Images(folder=str(root), cache_mb=cache_mb).open("train")
    first = samples.fetch(torch.tensor([5, 1, 5]))[0]
    again = samples.fetch(torch.tensor([1, 5, 9]))[0]
    torch.testing.assert_close(first[[1, 0]], again[[0, 1]], rtol=0, atol=0)


def test_nothing_fetched_has_the_right_shape(root):
    for cache_mb in (0, 1):
        inputs, targets = Images(folder=str(root), cache_mb=cache_mb).open("train").fetch(torch.arange(0))
        assert (inputs.shape, targets.shape) == ((0, 3, 4, 6), (0,))
        assert (inputs.dtype, targets.dtype) == (torch.float32, torch.int64)


def test_size_grey_and_normalising(root):
    source = Images(folder=str(root), size=8, channels=1, mean=(0.5,), std=(0.25,))
    inputs, _ = source.open("train").fetch(torch.arange(2))
    assert inputs.shape == (2, 1, 8, 8)
    assert inputs.min() < -1.5
    inputs, _ = Images(folder=str(root), std=(1.0, 2.0, 4.0)).open("train").fetch(torch.tensor([11]))
    torch.testing.assert_close(inputs[0, :, 0, 0], torch.tensor([80 / 255, 30 / 255 / 2, 7 / 255 / 4]))


def test_parts_may_have_other_names(root):
    for path in list(root.iterdir()):
        path.rename(path.with_name(path.name.replace("test", "val")))
    assert len(Images(folder=str(root), test="val").open("test")) == 6


def test_corrupt_image_is_named(tmp_path):
    write_folder(tmp_path, files_of("train", 2) | files_of("test", 2))
    path = tmp_path / "train" / "bee" / "0001.png"
    path.write_bytes(path.read_bytes()[:40])
    samples = Images(folder=str(tmp_path)).open("train")
    with pytest.raises(DataError, match=f"^{path}: not an image that can be decoded"):
        samples.fetch(torch.arange(6))


def test_corrupt_image_in_a_tar_is_named(train_tar):
    write_tar(train_tar, files_of("train", 1) | {"train/cat/9999.jpg": b"\xff\xd8\xff nonsense"})
    samples = Images(folder=str(train_tar.parent)).open("train")
    with pytest.raises(DataError, match=f"^{train_tar}:train/cat/9999.jpg: not an image that can be decoded"):
        samples.fetch(torch.arange(4))


def test_image_of_another_size_is_named_unless_size_is_set(tmp_path):
    write_folder(tmp_path, files_of("train", 2) | files_of("test", 2))
    path = tmp_path / "train" / "cat" / "0000.png"
    path.write_bytes(picture((1, 2, 3), size=(9, 8)))
    with pytest.raises(DataError) as problem:
        Images(folder=str(tmp_path)).open("train").fetch(torch.tensor([4]))
    assert str(problem.value) == (
        f"{path}: is 9x8 pixels, the first image 6x4; accepted: one size, or the setting `size`"
    )
    assert Images(folder=str(tmp_path), size=5).open("train").fetch(torch.tensor([4]))[0].shape == (1, 3, 5, 5)


def test_class_that_only_the_test_part_has_is_refused(tmp_path):
    write_folder(tmp_path, files_of("train", 1) | files_of("test", 1) | {"test/dog/0.png": picture((0, 0, 0))})
    with pytest.raises(DataError, match="class 'dog' is not in"):
        Images(folder=str(tmp_path)).open("test")


def test_missing_and_empty_parts_are_named(tmp_path):
    assert refused_at_check(Path("nowhere")) == (
        "nowhere: there is no such folder; accepted: a folder with a training and a test part"
    )
    assert refused_at_check(tmp_path) == (
        f"{tmp_path}: has no train; accepted: a folder train, or train.tar, train.tar.gz, train.tgz"
    )
    (tmp_path / "ant").mkdir()
    assert refused_at_check(tmp_path).endswith("; train: . and data.split if its own folders are the classes")
    (tmp_path / "ant").rmdir()
    for name in ("train", "test"):
        (tmp_path / name).mkdir()
    assert refused_at_check(tmp_path) == (f"{tmp_path}/train: has no folder in it; accepted: one folder per class")
    write_folder(tmp_path, {"train/ant/readme.txt": b"no image", "test/ant/.hidden.png": b""})
    assert refused_at_open(tmp_path).startswith(
        f"{tmp_path}/train: empty: no such file found; accepted: class folders of"
    )


def test_empty_tar_is_refused(train_tar):
    train_tar.write_bytes(b"")
    assert refused_at_check(train_tar.parent).startswith(f"{train_tar}: empty (0 bytes)")
    write_tar(train_tar, {})
    assert refused_at_check(train_tar.parent) == (
        f"{train_tar}: empty: the tar has no files; accepted: a .tar, .tar.gz or .tgz of class folders"
    )


def test_file_that_is_no_tar_is_refused(train_tar):
    train_tar.write_bytes(b"something else" * 100)
    for sentence in (refused_at_check(train_tar.parent), refused_at_open(train_tar.parent)):
        assert sentence.startswith(f"{train_tar}: truncated or not a tar (")


@pytest.mark.parametrize("ending", [".tar", ".tar.gz"])
@pytest.mark.parametrize("keep", [0.2, 0.5, 0.8])
def test_truncated_tar_is_refused(train_tar, ending, keep):
    path = train_tar.with_name(f"train{ending}")
    write_tar(path, files_of("train", 20))
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    sentence = refused_at_open(path.parent)
    assert sentence.startswith(f"{path}: ")
    assert "truncated" in sentence


def test_tar_cut_between_two_files_is_refused(train_tar):
    write_tar(train_tar, files_of("train", 2))
    with tarfile.open(train_tar) as tar:
        cut = tar.getmembers()[4].offset
    train_tar.write_bytes(train_tar.read_bytes()[:cut])
    assert refused_at_open(train_tar.parent) == (
        f"{train_tar}: truncated: ends without the empty block that ends a tar; "
        "accepted: a .tar, .tar.gz or .tgz of class folders"
    )


def test_damaged_gz_is_refused(train_tar):
    path = train_tar.with_name("train.tar.gz")
    write_tar(path, files_of("train", 3))
    content = bytearray(path.read_bytes())
    content[-8] ^= 1
    path.write_bytes(content)
    assert refused_at_open(path.parent).startswith(f"{path}: damaged (")


def test_gz_that_unpacks_beyond_the_limit_is_refused(train_tar, monkeypatch):
    monkeypatch.setattr(unpacking, "LIMIT_BYTES", 2**20)
    path = train_tar.with_name("train.tar.gz")
    path.write_bytes(gzip.compress(bytes(2**23)))
    assert refused_at_open(path.parent) == (
        f"{path}: unpacks to more than 1 MiB, the limit for memory; "
        "accepted: the same as a plain .tar, which is read in place"
    )


def test_gz_that_unpacks_to_many_times_its_size_is_refused_before_memory_is_taken_for_it(train_tar):
    path = train_tar.with_name("train.tar.gz")
    with gzip.open(path, "wb") as file:
        for _ in range(40):
            file.write(bytes(2**20))
    assert path.stat().st_size < 40 * 2**10 * 1.1  # a thousandth of it
    came: list[int] = []
    with pytest.raises(DataError):
        came.extend(len(piece) for piece in unpacking.unpacked(path, "", ""))
    limit = max(unpacking.SMALL_BYTES, unpacking.RATIO_LIMIT * path.stat().st_size)
    assert sum(came) <= limit
    sentence = refused_at_open(path.parent)
    assert sentence.startswith(
        f"{path}: unpacks to more than {limit / 2**20:,.0f} MiB, and to more than 100 times its size;"
    )


def test_what_unpacks_to_little_may_do_so_from_nothing(train_tar):
    path = train_tar.with_name("train.tar.gz")
    write_tar(path, files_of("train", 1) | {"train/ant/notes.txt": bytes(8 * 2**20)})
    assert path.stat().st_size * unpacking.RATIO_LIMIT < 8 * 2**20 < unpacking.SMALL_BYTES
    assert len(Images(folder=str(train_tar.parent)).open("train")) == 3


def png_of(width: int, height: int) -> bytes:
    """An image that says it is so large, and has one row."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    pixels = zlib.compress(bytes(width * 3 + 1))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [(8192, 8193), (60_000, 60_000)])
def test_image_of_absurd_size_is_refused_by_its_header(tmp_path, side, monkeypatch):
    write_folder(tmp_path, {"train/ant/0.png": png_of(*side)} | files_of("test", 1))
    monkeypatch.setattr(Image.Image, "convert", lambda *_: pytest.fail("its pixels were decoded"))
    with pytest.raises(DataError, match=r"0.png: not an image that can be decoded \(.*pixels"):
        Images(folder=str(tmp_path), size=8).open("train")


def test_image_file_of_absurd_size_is_refused_unread(tmp_path, monkeypatch):
    write_folder(tmp_path, files_of("train", 1) | files_of("test", 1))
    path = tmp_path / "train" / "ant" / "0000.png"
    with path.open("wb") as file:
        file.truncate(2**33)  # of holes
    with pytest.raises(DataError, match=rf"{path}: .*it has {2**33} bytes, and at most {256 * 2**20} are read"):
        Images(folder=str(tmp_path)).open("train").fetch(torch.arange(3))


@pytest.mark.parametrize("name", ["../ant/x.png", "train/../../ant/x.png", "/etc/ant/x.png"])
def test_path_that_leaves_the_archive_is_refused_by_name(train_tar, name):
    write_tar(train_tar, files_of("train", 1) | {name: picture((0, 0, 0))})
    assert refused_at_open(train_tar.parent) == (
        f"{train_tar}: has the path {name!r}, which leaves the archive; accepted: class/file"
    )


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_link_is_refused_by_name(train_tar, kind):
    link = tarfile.TarInfo("train/ant/link.png")
    link.type, link.linkname = kind, "/etc/passwd"
    write_tar(train_tar, files_of("train", 1), extra=(link,))
    assert refused_at_open(train_tar.parent) == (
        f"{train_tar}: 'train/ant/link.png' is a link; accepted: regular files in class folders"
    )


def test_device_is_refused_by_name(train_tar):
    device = tarfile.TarInfo("train/ant/device.png")
    device.type = tarfile.CHRTYPE
    write_tar(train_tar, files_of("train", 1), extra=(device,))
    assert "'train/ant/device.png' is not a regular file" in refused_at_open(train_tar.parent)


def test_reading_a_tar_writes_nothing(train_tar):
    write_tar(train_tar, files_of("train", 2))
    before = sorted(train_tar.parent.rglob("*"))
    Images(folder=str(train_tar.parent)).open("train").fetch(torch.arange(6))
    assert sorted(train_tar.parent.rglob("*")) == before


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"size": 0}, "size is 0; accepted: 1 to 4096"),
        ({"channels": 4}, "channels is 4; accepted: 1 (grey), 3 (colour)"),
        ({"mean": (0.1, 0.2)}, "mean has 2 numbers; accepted: 1, or one per channel"),
        ({"std": (0.0,)}, "std is (0.0,); accepted: above 0"),
        ({"cache_mb": -1}, "cache_mb is -1; accepted: 0 or more"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, sentence):
    with pytest.raises(SettingError) as problem:
        Images(folder="x", **settings)
    assert str(problem.value) == sentence


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("side", [20, 90])
def test_resizing_gives_what_pillow_gives_to_a_rounding(kind, channels, side):
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (48, 64, 3), dtype=np.uint8)).save(buffer, kind)
    plain = ImageDecoder(channels, None)(buffer.getvalue())
    pillow = Image.fromarray(plain if channels == 3 else plain[:, :, 0])
    expected = np.asarray(pillow.resize((side, side), Image.Resampling.BILINEAR)).reshape(side, side, channels)
    batch = np.zeros((3, side, side, channels), dtype=np.uint8)
    decode, out = ImageDecoder(channels, side), batch[1]
    for found in (decode(buffer.getvalue()), decode(buffer.getvalue(), out)):
        assert np.abs(found.astype(int) - expected.astype(int)).max() <= 2
    assert found is out
    assert not batch[[0, 2]].any()
