"""Image files in other containers than folders: the same pixels as `images` gives, a sentence for each mistake."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from volary.data.feed import one_pass
from volary.data.preparation.packing import pack
from volary.data.skipping import Skipping
from volary.data.sources import ROOM
from volary.data.sources.images import Images
from volary.errors import DataError

COUNT = 12


def picture(number: int, kind: str = "JPEG") -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def label(number: int) -> int:
    return number % 3


def write_images(folder: Path) -> None:
    for split in ("train", "test"):
        for number in range(COUNT):
            path = folder / split / f"{label(number)}" / f"{number:03}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(picture(number))


def as_list(folder: Path) -> dict[str, object]:
    write_images(folder)
    for split in ("train", "test"):
        lines = [f"{split}/{label(number)}/{number:03}.jpg {label(number)}\n" for number in range(COUNT)]
        (folder / f"{split}.txt").write_text("".join(lines))
    return {"train": folder / "train.txt", "test": folder / "test.txt"}


def as_shards(folder: Path) -> dict[str, object]:
    folder.mkdir(exist_ok=True)
    for split in ("train", "test"):
        for shard, numbers in enumerate((range(5), range(5, COUNT))):
            files = {}
            for number in numbers:
                files[f"a.b/{number:03}.jpg"] = picture(number)
                files[f"a.b/{number:03}.cls"] = f"{label(number)}\n".encode()
            write_tar(folder / f"{split}-{shard}.tar", files)
    return {"folder": folder}


def write_tar(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def varint(value: int) -> bytes:
    return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])


def datum(number: int, *, encoded: bool) -> bytes:
    """As protobuf writes it; plain ones are blue, green, red, with a float field that nobody reads."""
    data = picture(number)
    if not encoded:
        colours = np.asarray(Image.open(io.BytesIO(data)))[:, :, ::-1]
        data = np.ascontiguousarray(colours.transpose(2, 0, 1)).tobytes()
    head = b"".join(bytes([field << 3]) + varint(value) for field, value in ((1, 3), (2, 5), (3, 7)))
    tail = bytes([5 << 3]) + varint(label(number)) + bytes([6 << 3 | 5]) + bytes(4) + bytes([7 << 3, encoded])
    return head + bytes([4 << 3 | 2]) + varint(len(data)) + data + tail


def as_lmdb(folder: Path, *, encoded: bool = True) -> dict[str, object]:
    lmdb = pytest.importorskip("lmdb")
    folder.mkdir(exist_ok=True)
    for split in ("train", "test"):
        with lmdb.open(str(folder / split), map_size=2**24) as opened, opened.begin(write=True) as writing:
            for number in range(COUNT):
                writing.put(f"{number:08}".encode(), datum(number, encoded=encoded))
    return {"train": folder / "train", "test": folder / "test"}


def as_parquet(folder: Path, suffix: str = ".parquet", *, nested: bool = False) -> dict[str, object]:
    arrow = pytest.importorskip("pyarrow")
    folder.mkdir(exist_ok=True)
    files = [picture(number) for number in range(COUNT)]
    images = arrow.array([{"bytes": file, "path": "x"} for file in files] if nested else files)
    table = arrow.table({"image": images, "label": [label(number) for number in range(COUNT)], "more": [0.5] * COUNT})
    for split in ("train", "test"):
        path = folder / f"{split}{suffix}"
        if suffix == ".parquet":
            pytest.importorskip("pyarrow.parquet").write_table(table, path, row_group_size=5)
        else:
            new = arrow.ipc.new_stream if nested else arrow.ipc.new_file
            with new(str(path), table.schema) as writer:
                writer.write_table(table, max_chunksize=5)
    return {"train": folder / f"train{suffix}", "test": folder / f"test{suffix}"}


WAYS = {
    "list": ("list", as_list),
    "shards": ("shards", as_shards),
    "lmdb": ("lmdb", as_lmdb),
    "lmdb, plain": ("lmdb", lambda folder: as_lmdb(folder, encoded=False)),
    "parquet": ("parquet", as_parquet),
    "arrow": ("parquet", lambda folder: as_parquet(folder, ".arrow")),
    "parquet of Hugging Face": ("parquet", lambda folder: as_parquet(folder, nested=True)),
    "arrow stream of Hugging Face": ("parquet", lambda folder: as_parquet(folder, ".arrow", nested=True)),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_same_pixels_and_labels_as_from_folders(tmp_path, way):
    name, write = WAYS[way]
    source = ROOM.load(name)(**write(tmp_path / "there"), mean=(0.5,), std=(0.25,))
    source.check()
    write_images(tmp_path / "files")
    expected, classes = (
        Images(folder=tmp_path / "files", mean=(0.5,), std=(0.25,)).open("train").fetch(torch.arange(12))
    )
    order = torch.arange(COUNT).sort(stable=True, dim=0).indices
    by_class = torch.tensor(sorted(range(COUNT), key=lambda number: (label(number), number)))
    samples = source.open("train")
    inputs, targets = samples.fetch(order)
    assert (len(samples), samples.classes, samples.input_shape) == (COUNT, 3, (3, 5, 7))
    assert targets.tolist() == [label(number) for number in range(COUNT)]
    torch.testing.assert_close(inputs[by_class], expected, rtol=0, atol=0)
    assert classes.tolist() == targets[by_class].tolist()
    assert sum(batch.count for batch in one_pass(source.open("test"), 5)) == COUNT


def refused(name: str, settings: dict[str, object]) -> str:
    with pytest.raises(DataError) as problem:
        ROOM.load(name)(**settings).open("train")
    return str(problem.value)


def test_a_line_without_a_label_is_named(tmp_path):
    settings = as_list(tmp_path)
    path = tmp_path / "train.txt"
    path.write_text(path.read_text() + "\n0/x.jpg\n")
    sentence = f"{path}:14: has no label: '0/x.jpg'; accepted: a text file with a path and a label on each line"
    assert refused("list", settings) == sentence


def test_names_are_classes_and_a_name_that_training_has_not_is_refused(tmp_path):
    settings = as_list(tmp_path)
    (tmp_path / "train.txt").write_text("train/0/000.jpg pear\ntrain/1/001.jpg apple\n")
    (tmp_path / "test.txt").write_text("train/0/000.jpg pear\ntest/1/001.jpg plum\n")
    source = ROOM.load("list")(**settings)
    assert source.open("train").fetch(torch.arange(2))[1].tolist() == [1, 0]
    with pytest.raises(DataError, match=r"test.txt:2: has the label 'plum'; accepted: one that .*train.txt has"):
        source.open("test")


def test_a_file_that_is_gone_is_skipped_and_named(tmp_path):
    samples = ROOM.load("list")(**as_list(tmp_path)).open("train")
    gone = tmp_path / "train" / "1" / "004.jpg"
    gone.unlink()
    told: list[str] = []
    assert len(Skipping(samples, lambda _, text: told.append(text)).fetch(torch.arange(COUNT))[0]) == COUNT - 1
    assert told == [f"{gone}: not an image that can be decoded ([Errno 2] No such file or directory: '{gone}')"]


def test_a_sample_that_lacks_its_label_is_named(tmp_path):
    write_tar(tmp_path / "train-0.tar", {"x/1.jpg": picture(1), "x/1.cls": b"0", "x/2.seg.png": picture(2)})
    assert refused("shards", {"folder": tmp_path}) == (
        f"{tmp_path}/train-0.tar:x/2: has no image (.jpg, .jpeg, .png, .webp, .ppm); it has .seg.png"
    )


def test_a_shard_that_leaves_the_archive_or_is_cut_is_refused(tmp_path):
    as_shards(tmp_path)
    path = tmp_path / "train-1.tar"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert "truncated" in refused("shards", {"folder": tmp_path})
    write_tar(path, {"../1.jpg": picture(1), "../1.cls": b"1"})
    assert "'../1.jpg', which leaves the archive" in refused("shards", {"folder": tmp_path})


@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_a_cut_jpeg_in_a_shard_is_skipped_and_named(tmp_path, keep):
    cut = picture(1)[: int(keep * len(picture(1)))]
    write_tar(tmp_path / "train-0.tar", {"0.jpg": picture(0), "0.cls": b"0", "1.jpg": cut, "1.cls": b"1"})
    told: list[str] = []
    samples = Skipping(ROOM.load("shards")(folder=tmp_path).open("train"), lambda _, text: told.append(text))
    assert samples.fetch(torch.arange(2))[1].tolist() == [0]
    assert told[0].startswith(f"{tmp_path}/train-0.tar:1.jpg: not an image that can be decoded (")


def test_a_value_that_is_no_datum_is_named_by_its_key(tmp_path):
    lmdb = pytest.importorskip("lmdb")
    settings = as_lmdb(tmp_path)
    with lmdb.open(str(tmp_path / "train")) as opened, opened.begin(write=True) as writing:
        writing.put(b"00000004", b"\xff" * 40)
    assert refused("lmdb", settings).startswith(f"{tmp_path}/train:00000004: ")


def test_a_column_that_is_missing_is_named(tmp_path):
    settings = as_parquet(tmp_path)
    assert (
        refused("parquet", settings | {"target": "class"})
        == f"{tmp_path}/train.parquet: has no column 'class'; it has image, label, more"
    )


def test_columns_of_numbers_are_inputs(tmp_path):
    settings = as_parquet(tmp_path)
    inputs, targets = ROOM.load("parquet")(**settings, inputs=("more", "label")).open("train").fetch(torch.arange(2))
    assert (inputs.tolist(), targets.tolist()) == ([[0.5, 0.0], [0.5, 1.0]], [0, 1])


def test_a_parquet_file_of_many_equal_numbers_is_refused_before_memory_is_taken_for_them(tmp_path):
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    settings = as_parquet(tmp_path)
    table = arrow.table({"more": np.zeros(2**21), "label": np.zeros(2**21, dtype=np.int64)})
    parquet.write_table(table, tmp_path / "train.parquet")
    assert refused("parquet", settings | {"inputs": ("more",)}) == (
        f"{tmp_path}/train.parquet: unpacks to more than 16 MiB, and to more than 100 times its size; "
        "accepted: an .arrow file"
    )


@pytest.mark.parametrize("kind", ["file", "stream"])
@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_compressed_buffers_of_an_arrow_file_are_refused_before_memory_is_taken_for_them(kind, compression, tmp_path):
    arrow = pytest.importorskip("pyarrow")
    ipc = pytest.importorskip("pyarrow.ipc")
    settings = as_parquet(tmp_path)
    settings["train"] = tmp_path / "train.arrow"

    def write(rows: int) -> None:
        table = arrow.table({"more": np.zeros(rows), "label": np.zeros(rows, dtype=np.int64)})
        options = ipc.IpcWriteOptions(compression=compression)
        with getattr(ipc, f"new_{kind}")(settings["train"], table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=2**18)

    settings |= {"inputs": ("more",)}
    write(100)
    assert len(ROOM.load("parquet")(**settings).open("train")) == 100
    write(2**21)
    assert refused("parquet", settings) == (
        f"{tmp_path}/train.arrow: unpacks to more than 16 MiB, and to more than 100 times its size; "
        "accepted: one whose buffers are not compressed"
    )


def test_a_file_that_is_no_parquet_is_refused_before_a_run(tmp_path):
    settings = as_parquet(tmp_path)
    (tmp_path / "test.parquet").write_bytes(b"something else")
    with pytest.raises(DataError, match=r"test.parquet: is neither Parquet nor Arrow"):
        ROOM.load("parquet")(**settings).check()


@pytest.mark.parametrize("way", ["list", "shards", "lmdb", "parquet", "parquet of Hugging Face", "packed"])
def test_16_bits_of_grey_are_scaled_whatever_holds_the_files(tmp_path, way, monkeypatch):
    ramp = (np.arange(35) * 1872).astype(np.uint16).reshape(5, 7)
    buffer = io.BytesIO()
    Image.fromarray(ramp).save(buffer, "PNG")
    monkeypatch.setattr(f"{__name__}.picture", lambda _: buffer.getvalue())
    if way == "packed":
        write_images(tmp_path / "files")
        for split in ("train", "test"):
            samples = Images(folder=tmp_path / "files").open(split)
            pack(samples, tmp_path / split, 1000, lambda _: None)
        name, settings = "packed", {"folder": tmp_path}
    else:
        name, write = WAYS[way]
        settings = write(tmp_path)
    expected = torch.from_numpy((ramp >> 8).astype(np.uint8)) / 255
    for channels in (1, 3):
        samples = ROOM.load(name)(**settings, channels=channels, cache_mb=0).open("train")
        for _ in range(2):  # the first one, and those of a batch that is there
            inputs, _ = samples.fetch(torch.arange(COUNT))
            torch.testing.assert_close(inputs, expected.expand(COUNT, channels, 5, 7), rtol=0, atol=1e-6)
