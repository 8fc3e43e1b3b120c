"""Paths in stores: every source gives the same samples from there, and what fails is asked for again, within bounds."""

from __future__ import annotations

import http.server
import threading
from functools import partial
from pathlib import Path

import fsspec
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry

from data._stores import ALL, KINDS, WITHOUT_FILES, put, s3_server
from volary.data.feed import Feed, one_pass
from volary.data.skipping import Skipping
from volary.data.sources.images import Images
from volary.data.sources.packed import PackedShards
from volary.errors import DataError, SettingError
from volary.session import Session
from volary.storage import retrying
from volary.storage.remote_path import RemotePath
from volary.storage.retrying import Retries


@pytest.fixture(scope="module")
def s3():
    with s3_server() as address:
        yield address


@pytest.fixture
def memory():
    store = fsspec.filesystem("memory")
    yield "memory://data"
    store.rm("/", recursive=True)


def source_of(settings):
    return Session(network="softmax", data={"source": settings}).data.source


def everything(source, split):
    source.check()
    batches = list(one_pass(source.open(split), 7))
    inputs = [batch.to(torch.device("cpu")).inputs for batch in batches]
    return torch.cat(inputs), torch.cat([batch.targets for batch in batches])


def compare(kind, here, url):
    write, settings = KINDS[kind]
    here.mkdir()
    write(here)
    put(here, url)
    for split in ("train", "test"):
        local = everything(source_of(settings(lambda name: str(here / name))), split)
        remote = everything(source_of(settings(lambda name: f"{url}/{name}".rstrip("/"))), split)
        for ours, theirs in zip(local, remote, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_every_source_that_reads_files_is_compared():
    assert {settings(lambda name: name)["name"] for _, settings in KINDS.values()} == ALL - WITHOUT_FILES


@pytest.mark.parametrize("kind", KINDS)
def test_a_source_gives_the_same_samples_from_a_store_as_from_this_machine(kind, tmp_path, memory):
    compare(kind, tmp_path / "here", memory)


@pytest.mark.parametrize("kind", ["images", "packed", pytest.param("shards", marks=pytest.mark.slow)])
def test_and_from_an_s3_server(kind, tmp_path, s3):
    compare(kind, tmp_path / "here", f"s3://bucket/{kind}")


def test_and_from_a_web_server_that_knows_no_ranges(tmp_path, s3):
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "here"))
    handler.func.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        write, settings = KINDS["list"]
        write(tmp_path / "here")
        at = f"http://127.0.0.1:{server.server_port}"
        remote = everything(source_of(settings(lambda name: f"{at}/{name}")), "train")
        local = everything(source_of(settings(lambda name: str(tmp_path / "here" / name))), "train")
        server.shutdown()
        thread.join()
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(local, remote, strict=True))


def test_a_feed_has_the_same_order_from_a_store(tmp_path, memory):
    KINDS["images"][0](tmp_path)
    put(tmp_path, memory)
    feeds = [Feed(Images(folder=folder).open("train"), 5) for folder in (tmp_path, f"{memory}")]
    for _ in range(12):
        ours, theirs = (next(feed).targets for feed in feeds)
        assert torch.equal(ours, theirs)


class Flaky:
    """A store of which every so many calls fails once; `calls` counts those that ask for content."""

    def __init__(self, store, every):
        self._store, self._every, self.calls, self._failed = store, every, 0, set()

    def __getattr__(self, name):
        return getattr(self._store, name)

    def cat_file(self, path, start=None, end=None):
        self.calls += 1
        if self._every and self.calls % self._every == 0 and (path, start) not in self._failed:
            self._failed.add((path, start))
            raise ConnectionResetError("the server hung up")
        return self._store.cat_file(path, start, end)

    def cat_ranges(self, paths, starts, ends, on_error="return"):
        found = []
        for path, start, end in zip(paths, starts, ends, strict=True):
            try:
                found.append(self.cat_file(path, start, end))
            except OSError as problem:
                found.append(problem)
        return found


def test_what_fails_is_asked_for_again_and_counted(tmp_path, memory, monkeypatch):
    monkeypatch.setattr(retrying.RETRIES, "pauses_s", (0.0, 0.0))
    KINDS["images"][0](tmp_path)
    put(tmp_path, memory)
    flaky, before = Flaky(fsspec.filesystem("memory"), every=3), retrying.RETRIES.count
    monkeypatch.setattr(fsspec, "url_to_fs", lambda url: (flaky, "/data"))
    inputs, _ = everything(Images(folder=memory), "train")
    expected, _ = everything(Images(folder=tmp_path), "train")
    assert torch.equal(inputs, expected)
    assert retrying.RETRIES.count > before


def test_a_store_that_keeps_failing_is_told_after_a_bounded_number_of_tries():
    asked = []

    def attempt():
        asked.append(1)
        raise TimeoutError("no answer")

    retries = Retries(pauses_s=(0.0, 0.0, 0.0))
    with pytest.raises(OSError, match=r"s3://b/x: the store failed 4 times in 0 s \(no answer\)"):
        retries.call("s3://b/x", attempt)
    assert (len(asked), retries.count) == (4, 3)
    assert sum(retrying.PAUSES_S) < 60


def test_a_file_that_is_not_there_is_asked_for_once():
    retries, asked = Retries(), []

    def attempt():
        asked.append(1)
        raise FileNotFoundError("x")

    with pytest.raises(FileNotFoundError):
        retries.call("s3://b/x", attempt)
    assert len(asked) == 1


def test_a_damaged_image_in_a_store_is_skipped_by_its_url(tmp_path, memory):
    KINDS["images"][0](tmp_path)
    (tmp_path / "train" / "a" / "000.jpg").write_bytes(b"\xff\xd8 no image")
    put(tmp_path, memory)
    told = []
    samples = Skipping(Images(folder=memory).open("train"), lambda index, reason: told.append(reason))
    assert sum(batch.count for batch in one_pass(samples, 7)) == 23
    assert len(told) == 1
    assert told[0].startswith("memory://data/train/a/000.jpg: ")


def test_each_block_of_a_pack_is_read_once(tmp_path, memory, monkeypatch):
    KINDS["packed"][0](tmp_path)
    put(tmp_path, memory)
    counted = Flaky(fsspec.filesystem("memory"), every=0)
    monkeypatch.setattr(fsspec, "url_to_fs", lambda url: (counted, "/data"))
    samples = PackedShards(folder=memory, cache_mb=0).open("train")
    before = counted.calls
    assert sum(batch.count for batch in one_pass(samples, 4)) == 24
    assert counted.calls - before <= 24


def test_a_scheme_that_nobody_knows_is_one_sentence():
    with pytest.raises(SettingError, match=r"^nope://x/y: .*accepted: s3://, hdfs://, https://"):
        RemotePath.of("nope://x/y")


class Broken(fsspec.AbstractFileSystem):
    """A store whose library lacks another one, as pyarrow's for HDFS without Hadoop's, which says so at length."""

    def __init__(self, **_: object) -> None:
        raise OSError("Unable to load libjvm\ndlopen(/usr/lib/jvm/default-java/libjvm.so) failed\n")


class Strict(MemoryFileSystem):
    """A store that takes no options but its own."""

    cachable = False

    def __init__(self) -> None:
        super().__init__()


def test_a_store_whose_library_cannot_be_loaded_is_one_sentence_and_one_without_listings_gets_no_options(monkeypatch):
    monkeypatch.setitem(_registry, "hdfs", Broken)
    with pytest.raises(SettingError, match=r"^hdfs://x/y: Unable to load libjvm; accepted: .*hdfs-native") as refused:
        RemotePath.of("hdfs://x/y", changes=True)
    assert "\n" not in str(refused.value)
    monkeypatch.setitem(_registry, "hdfs", Strict)
    assert not RemotePath.of("hdfs://x/y", changes=True).exists()


def test_what_is_missing_in_a_store_is_one_sentence(memory):
    with pytest.raises(DataError, match=r"^memory://data/none: there is no such folder; accepted: "):
        Images(folder="memory://data/none").check()


def test_a_url_stays_one_in_the_resolved_session(tmp_path):
    session = Session(network="softmax", data={"source": {"name": "images", "folder": "s3://bucket/photos"}})
    path = tmp_path / "session.yaml"
    path.write_text(session.to_yaml())
    assert Session.read(path) == session
    assert str(Session.read(path).data.source.folder) == "s3://bucket/photos"
    assert Session.read(path, ["data.source.folder=here"]).data.source.folder == Path.cwd() / "here"
