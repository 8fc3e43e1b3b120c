"""The cache keeps a file once a machine, drops nothing within an epoch, and checks it before use."""

from __future__ import annotations

import os
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

import fsspec
import pytest

from data._stores import KINDS, put
from volary.data.caching.cached import reads, through_cache
from volary.data.caching.disk_level import disk_shelf
from volary.data.feed import Feed
from volary.data.skipping import Skipping
from volary.data.sources.images import Images
from volary.data.sources.mix import Mix
from volary.data.sources.packed import PackedShards
from volary.errors import SettingError
from volary.session.data_section import Cache
from volary.session.spec import Session
from volary.sharding.samples import SampleShare
from volary.storage.retrying import RETRIES
from volary.train.recording.reads import Reads
from volary.train.recording.recorder import Recorder

COUNT = 24  # samples of a part, of about 700 bytes each


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    KINDS["images"][0](tmp_path / "files")
    return tmp_path / "files"


def opened(folder, cache, source=Images):
    samples = source(folder=folder, cache_mb=0).open("train")
    return through_cache(samples, cache, f"{folder}")


def epochs(samples, count=1):
    """Reads by level of each epoch."""
    feed, found = Feed(samples, 8), []
    for epoch in range(count):
        before = reads(samples)
        feed.limit((epoch + 1) * feed.steps_per_epoch)
        assert sum(batch.count for batch in feed) == COUNT
        found.append(reads(samples) - before)
    return found


@pytest.mark.parametrize("level", ["memory", "disk"])
def test_the_second_epoch_reads_nothing_from_the_source(folder, tmp_path, level):
    cache = Cache(memory="1MB") if level == "memory" else Cache(disk="1MB", path=tmp_path / "cache")
    assert epochs(opened(folder, cache), 3) == [Counter(source=COUNT), Counter({level: COUNT}), Counter({level: COUNT})]


def test_the_second_epoch_asks_a_store_for_nothing(folder, monkeypatch):
    put(folder, "memory://cached")
    store, asked = fsspec.filesystem("memory"), []
    samples = opened("memory://cached", Cache(memory="1MB"))
    assert epochs(samples, 1) == [Counter(source=COUNT)]
    for name in ("cat_file", "cat_ranges", "open"):
        monkeypatch.setattr(type(store), name, lambda *_, **__: asked.append(1) or pytest.fail("the store was asked"))
    assert epochs(samples, 1) == [Counter(memory=COUNT)]
    monkeypatch.undo()
    assert not asked
    store.rm("/", recursive=True)


@pytest.mark.parametrize("source", ["memory", "disk"])
def test_a_cache_that_is_too_small_keeps_the_same_part_in_every_epoch(folder, tmp_path, source):
    size = sum(path.stat().st_size for path in (folder / "train").rglob("*.jpg"))
    half = f"{size // 2}"
    cache = Cache(memory=half) if source == "memory" else Cache(disk=half, path=tmp_path / "cache")
    first, *others = epochs(opened(folder, cache), 4)
    assert first == Counter(source=COUNT)
    assert len({epoch[source] for epoch in others}) == 1
    assert COUNT * 0.4 < others[0][source] <= COUNT / 2
    assert all(epoch[source] + epoch["source"] == COUNT for epoch in others)


def test_memory_comes_before_the_disk(folder, tmp_path):
    size = sum(path.stat().st_size for path in (folder / "train").rglob("*.jpg"))
    _, second = epochs(opened(folder, Cache(memory=f"{size // 2}", disk="1MB", path=tmp_path / "cache")), 2)
    assert second["source"] == 0
    assert second["memory"] > 0
    assert second["disk"] > 0


def test_what_is_on_disk_serves_the_next_run(folder, tmp_path):
    cache = Cache(disk="1MB", path=tmp_path / "cache")
    epochs(opened(folder, cache))
    assert epochs(opened(folder, cache)) == [Counter(disk=COUNT)]


@pytest.mark.parametrize("damage", ["a byte", "cut", "index cut", "index of garbage"])
def test_what_was_damaged_on_disk_is_read_from_the_source_again(folder, tmp_path, damage):
    cache = Cache(disk="1MB", path=tmp_path / "cache")
    expected = [batch.inputs for batch in _epoch(opened(folder, Cache()))]
    epochs(opened(folder, cache))
    data, index = (next((tmp_path / "cache").glob(f"*/{name}.bin")) for name in ("data", "index"))
    content = bytearray(data.read_bytes())
    if damage == "a byte":
        content[100] ^= 1
        data.write_bytes(content)
    elif damage == "cut":
        os.truncate(data, len(content) // 2)
    elif damage == "index cut":
        os.truncate(index, 100)
    else:
        index.write_bytes(os.urandom(index.stat().st_size))
    samples = opened(folder, cache)
    found = [batch.inputs for batch in _epoch(samples)]
    assert all((ours == theirs).all() for ours, theirs in zip(found, expected, strict=True))
    assert reads(samples)["source"] >= 1


def test_files_that_changed_are_not_served_from_the_cache(folder, tmp_path):
    cache = Cache(disk="1MB", path=tmp_path / "cache")
    epochs(opened(folder, cache))
    path = next((folder / "train").rglob("*.jpg"))
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    assert epochs(opened(folder, cache)) == [Counter(source=COUNT)]


def test_a_data_set_that_nobody_uses_makes_room_and_one_in_use_does_not(tmp_path):
    path, record = tmp_path / "cache", b"x" * 1000
    old, used = (disk_shelf(name * 64, 4, 2500, path) for name in "ab")
    assert old.put(0, record)
    assert used.put(0, record)
    (path / "mine.txt").write_text("not a cache's")
    del old
    new = disk_shelf("c" * 64, 4, 2500, path)
    assert new.put(0, record)
    assert not new.put(1, record), "what is in use stays"
    assert {entry.name[0] for entry in path.iterdir()} == {"b", "c", "u", "m"}
    assert used.get(0) == new.get(0) == record


def both_halves(rank, world_size, folder):
    """The reads of two epochs, in which workers have other shares."""
    samples = opened(folder, Cache(memory="1MB"))
    feed, found = Feed(samples, 8, share=SampleShare(rank, world_size)), []
    for epoch in range(2):
        import torch.distributed as dist

        dist.barrier()
        before = reads(samples)
        feed.limit((epoch + 1) * feed.steps_per_epoch)
        assert sum(batch.count for batch in feed) == COUNT // world_size
        found.append(dict(reads(samples) - before))
        dist.barrier()
    return found


def test_workers_of_a_machine_share_one_copy_in_memory(folder, workers):
    found = workers(2, both_halves, folder)
    assert found == [[{"source": COUNT // 2}, {"memory": COUNT // 2}]] * 2


def test_memory_goes_with_the_last_process_that_has_it(folder):
    samples = opened(folder, Cache(memory="1MB"))
    epochs(samples)
    assert _held()
    for thread in threading.enumerate():
        if thread.name in ("decode", "read"):  # the last to have made a sample may not have ended yet
            thread.join(60)
    del samples
    assert not _held()


def test_parts_of_a_mix_and_packs_are_cached_too(folder, tmp_path):
    KINDS["packed"][0](tmp_path / "packs")
    packed = opened(tmp_path / "packs", Cache(memory="1MB"), PackedShards)
    assert epochs(packed, 2) == [Counter(source=COUNT), Counter(memory=COUNT)]
    mix = Mix(sources=(Images(folder=folder, cache_mb=0),)).open("train")
    skipping = Skipping(through_cache(mix, Cache(memory="1MB"), "mix"), lambda *_: None)
    assert epochs(skipping, 2) == [Counter(source=COUNT), Counter(memory=COUNT)]


def test_reads_by_level_are_an_event_an_epoch(folder):
    samples, recorder = opened(folder, Cache(memory="1MB")), Recorder(0)
    told = Reads(samples, recorder)
    for epoch in range(2):
        epochs(samples)
        told.end_epoch(epoch)
    assert [{name: event["data"][name] for name in ("epoch", "source", "memory")} for event in recorder.events] == [
        {"epoch": 0, "source": COUNT, "memory": 0},
        {"epoch": 1, "source": 0, "memory": COUNT},
    ]


def test_without_a_cache_nothing_is_told(folder, monkeypatch):
    monkeypatch.setattr(RETRIES, "count", 0)  # this process may have asked a store again in another test
    samples, recorder = opened(folder, Cache()), Recorder(0)
    _epoch(samples)
    Reads(samples, recorder).end_epoch(0)
    assert not recorder.events


def test_a_cache_on_disk_needs_a_path():
    with pytest.raises(SettingError, match="path is missing; accepted with disk: a folder on a local disk"):
        Cache(disk="1GB")


def test_sizes_are_read_and_written_back(tmp_path):
    cache = {"memory": "1.5GB", "disk": "100GiB", "path": str(tmp_path)}
    session = Session(network="softmax", data={"source": "digits", "cache": cache})
    assert (session.data.cache.memory.count, session.data.cache.disk.count) == (1_500_000_000, 100 * 2**30)
    (tmp_path / "session.yaml").write_text(session.to_yaml())
    assert Session.read(tmp_path / "session.yaml") == session
    with pytest.raises(SettingError, match=r"data\.cache\.memory: is 'much'; accepted: a size"):
        Session(network="softmax", data={"source": "digits", "cache": {"memory": "much"}})


def _epoch(samples):
    feed = Feed(samples, 8)
    feed.limit(feed.steps_per_epoch)
    return list(feed)


def _held():
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # of the listing itself
            links.append(str(entry.readlink()))
    return [link for link in links if "volary-cache" in link]
