"""Shards: what was packed comes back, whatever stopped the packing, and what was changed afterwards is found."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from volary.data.feed import Feed, one_pass
from volary.data.preparation.packing import pack
from volary.data.preparation.reading import each
from volary.data.preparation.survey import survey
from volary.data.records.packed import Packed
from volary.data.skipping import Skipping
from volary.data.sources.images import Images
from volary.data.sources.packed import PackedShards
from volary.errors import CorruptSample, DataError
from volary.sharding.samples import SampleShare

COUNT = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("files")
    random = np.random.default_rng(1)
    for split, count in (("train", COUNT), ("test", 20)):
        for number in range(count):
            path = root / split / "abc"[number % 3] / f"{number:04}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            buffer = io.BytesIO()
            Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(buffer, "JPEG")
            path.write_bytes(buffer.getvalue())
    return root


def packed(folder: Path, at: Path, shard_bytes: int = 20_000) -> Path:
    for split in ("train", "test"):
        pack(Images(folder=folder).open(split), at / split, shard_bytes, lambda _: None)
    return at


def test_a_pack_gives_the_same_samples_as_the_files(folder, tmp_path):
    source = PackedShards(folder=packed(folder, tmp_path))
    source.check()
    for split in ("train", "test"):
        files, shards = Images(folder=folder).open(split), source.open(split)
        assert (len(shards), shards.classes) == (len(files), 3)
        for ours, theirs in zip(shards.fetch(torch.arange(20)), files.fetch(torch.arange(20)), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert len(list((tmp_path / "train").glob("*.bin"))) > 3
    assert sorted(path.suffix for path in (tmp_path / "train").iterdir() if path.suffix != ".bin") == [".npz"]


def test_what_is_beside_the_shards_of_a_pack_is_said(folder, tmp_path):
    source = PackedShards(folder=packed(folder, tmp_path))
    assert source.open("train").remarks == ()
    (tmp_path / "train" / "00000.bin.orig").write_bytes(b"x")
    (tmp_path / "train" / "notes.txt").write_text("x")
    assert source.open("train").remarks == (f"{tmp_path}/train: 2 files are not read: 00000.bin.orig, notes.txt",)


def test_an_epoch_of_a_pack_has_every_sample_once_on_any_number_of_workers(folder, tmp_path):
    packed(folder, tmp_path)
    expected = Images(folder=folder, cache_mb=0).open("train")
    pixels = {tuple(expected.fetch(torch.tensor([i]))[0].view(-1)[:12].tolist()): i for i in range(COUNT)}
    seen = []
    for rank in range(3):
        feed = Feed(PackedShards(folder=tmp_path, cache_mb=0).open("train"), 32, share=SampleShare(rank, 3))
        feed.limit(feed.steps_per_epoch or 0)
        seen += [
            pixels[tuple(row.view(-1)[:12].tolist())] for batch in feed for row in batch.to(torch.device("cpu")).inputs
        ]
    assert sorted(seen) == list(range(COUNT))


def test_a_window_of_a_pack_is_read_block_by_block(folder, tmp_path, monkeypatch):
    packed(folder, tmp_path, shard_bytes=2**30)
    samples = PackedShards(folder=tmp_path, cache_mb=0).open("train")
    reads: list[int] = []
    original = Packed._piece
    monkeypatch.setattr(Packed, "_piece", lambda self, *where: reads.append(1) or original(self, *where))
    feed = Feed(samples, 32)
    feed.limit(feed.steps_per_epoch or 0)
    assert sum(batch.count for batch in feed) == COUNT
    # two threads may want the same block at once
    assert len(reads) <= 2 * -(-COUNT // samples.block)


def test_the_kernel_is_told_of_each_block_once_in_the_order_in_which_they_are_stored(folder, tmp_path, monkeypatch):
    packed(folder, tmp_path, 10**6)
    records, told = Packed(tmp_path / "train"), []
    monkeypatch.setattr("volary.data.records.packed.will_need", lambda *extent: told.append(extent[1:]))
    assert records.announce([290, 3, 70, 130, 200, 5])
    assert records.announce([150, 299, 64])
    starts = [sum(records.index.sizes[:first]) for first in (0, 64, 128, 192, 256, COUNT)]
    assert told == [(start, end - start) for start, end in pairwise(starts)]


def test_packing_goes_on_where_it_was_stopped(folder, tmp_path):
    samples, done = Images(folder=folder).open("train"), []

    def stop(count: int) -> None:
        done.append(count)
        if len(done) == 170:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(samples, tmp_path / "train", 20_000, stop)
    with pytest.raises(DataError, match=r"has no index.npz; accepted: a folder that `volary data pack` has finished"):
        Packed(tmp_path / "train")
    whole = len(list((tmp_path / "train").glob("*.bin")))
    assert whole >= 2
    told: list[int] = []
    pack(samples, tmp_path / "train", 20_000, told.append)
    assert sum(told) == COUNT
    assert [count for count in told if count > 1] == told[:whole]  # shards that were whole are not written again
    again = tmp_path / "again"
    pack(samples, again, 20_000, lambda _: None)
    assert {path.name: path.read_bytes() for path in again.glob("*.bin")} == {
        path.name: path.read_bytes() for path in (tmp_path / "train").glob("*.bin")
    }


def test_a_folder_that_holds_something_else_is_refused(folder, tmp_path):
    samples = Images(folder=folder).open("test")
    for there in ("notes.txt", "packing"):
        (tmp_path / there).mkdir()
        (tmp_path / there / there).write_text("something")
    with pytest.raises(DataError, match=r"notes.txt: holds something else already"):
        pack(samples, tmp_path / "notes.txt", 1000, lambda _: None)
    with pytest.raises(DataError, match="packing: holds a pack of other data, or in other shards, already"):
        pack(samples, tmp_path / "packing", 1000, lambda _: None)
    pack(samples, tmp_path / "whole", 1000, lambda _: None)
    with pytest.raises(DataError, match="whole: is packed already"):
        pack(samples, tmp_path / "whole", 1000, lambda _: None)


def test_a_file_that_cannot_be_read_is_named(folder, tmp_path):
    samples = Images(folder=packed_copy(folder, tmp_path)).open("test")
    gone = tmp_path / "files" / "test" / "b" / "0001.jpg"
    gone.unlink()
    with pytest.raises(DataError, match=rf"^{gone}: cannot be read \("):
        pack(samples, tmp_path / "packed", 1000, lambda _: None)


def packed_copy(folder: Path, at: Path) -> Path:
    for path in folder.rglob("*.jpg"):
        new = at / "files" / path.relative_to(folder)
        new.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(path.read_bytes())
    return at / "files"


def test_a_shard_that_is_cut_or_gone_is_refused_when_it_is_opened(folder, tmp_path):
    packed(folder, tmp_path)
    shard = tmp_path / "train" / "00001.bin"
    content = shard.read_bytes()
    shard.write_bytes(content[:-1])
    with pytest.raises(DataError, match=rf"00001.bin: has {len(content) - 1} bytes, its index says {len(content)}"):
        PackedShards(folder=tmp_path).open("train")
    shard.unlink()
    with pytest.raises(DataError, match=r"00001.bin: is missing"):
        PackedShards(folder=tmp_path).open("train")


def test_an_index_that_is_damaged_is_refused(folder, tmp_path):
    packed(folder, tmp_path)
    index = tmp_path / "train" / "index.npz"
    content = bytearray(index.read_bytes())
    content[100] ^= 255
    index.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"index.npz: damaged \("):
        PackedShards(folder=tmp_path).open("train")


def test_a_survey_finds_what_was_changed_by_its_checksum_and_what_cannot_be_decoded(folder, tmp_path):
    packed(folder, tmp_path)
    shard = tmp_path / "test" / "00000.bin"
    content = bytearray(shard.read_bytes())
    size = int(Packed(tmp_path / "test").index.sizes[0])
    content[size // 2] ^= 1
    shard.write_bytes(content)
    found = survey(PackedShards(folder=tmp_path).open("test"), lambda _: None, values=False)
    assert found.damaged == {f"{tmp_path}/test:a/0000.jpg": "its checksum is another one than when it was packed"}
    files = packed_copy(folder, tmp_path)
    cut = files / "test" / "c" / "0002.jpg"
    cut.write_bytes(cut.read_bytes()[:-2])
    found = survey(Images(folder=files).open("test"), lambda _: None, values=False)
    assert found.damaged == {str(cut): "Premature end of JPEG file"}


def test_a_survey_sums_up_what_numpy_sums_up(folder):
    samples = Images(folder=folder).open("test")
    found = survey(samples, lambda _: None, values=True)
    inputs, _ = samples.fetch(torch.arange(20))
    torch.testing.assert_close(torch.tensor(found.mean), inputs.mean((0, 2, 3)))
    torch.testing.assert_close(torch.tensor(found.std), inputs.std((0, 2, 3), correction=0))
    assert (found.shapes, dict(found.classes)) == ({(8, 8): 20}, {0: 7, 1: 7, 2: 6})


def test_a_record_of_a_shard_that_shrinks_during_a_run_is_skipped_and_named(folder, tmp_path):
    packed(folder, tmp_path)
    samples = PackedShards(folder=tmp_path, cache_mb=0).open("train")
    for path in (tmp_path / "train").glob("*.bin"):
        with path.open("r+b") as file:
            file.truncate(10)
    with pytest.raises(CorruptSample, match=r"/0000\d.bin: truncated at byte \d+"):
        samples.fetch(torch.tensor([200]))
    told: list[int] = []
    lost = sum(b.lost for b in one_pass(Skipping(samples, lambda index, _: told.append(index)), 8))
    assert lost == len(told) > 0


def test_results_come_in_order_and_an_error_where_it_belongs():
    assert list(each(lambda index: index * index, range(100), 3)) == [index * index for index in range(100)]
    came = each(lambda index: 1 // (50 - index), range(100), 3)
    assert [next(came) for _ in range(50)] == [1 // (50 - index) for index in range(50)]
    with pytest.raises(ZeroDivisionError):
        next(came)
