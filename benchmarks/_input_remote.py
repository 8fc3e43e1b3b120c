"""The input pipeline over a store: moto's server, which speaks S3, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from subprocess import DEVNULL, PIPE

import fsspec

from _report import Paired, Row, paired
from volary.data.caching.cached import through_cache
from volary.data.feed import Feed
from volary.data.loading.pipeline import Pipeline
from volary.data.records.packed import Packed
from volary.data.sources.packed import PackedShards
from volary.data.storage.place import located
from volary.session.data_section import Cache
from volary.session.values.size import Size
from volary.session.values.url import Location, Url

KEY = "benchmark/pack"
URL = f"s3://{KEY}"
_SERVER = """
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(*server.get_host_and_port(), flush=True)
input()
"""
_SETTINGS = {
    "AWS_ACCESS_KEY_ID": "someone",
    "AWS_SECRET_ACCESS_KEY": "something",
    "AWS_DEFAULT_REGION": "us-east-1",
}


def remote_rows(name: str, wanted: str, pack: Path, batch_size: int, pairs: int) -> list[Row]:
    """The row, or none if there is no such server here. pack: in local files."""
    try:
        import moto  # noqa: F401
        import s3fs  # noqa: F401
    except ImportError as problem:
        print(f"{name}: left out, {problem} (pip install 'moto[server]' s3fs)")
        return []
    with _store(pack):
        if name == "remote-first":
            return [_first(name, wanted, batch_size, pairs)]
        return [_second(name, wanted, pack, batch_size, pairs)]


def _first(name: str, wanted: str, batch_size: int, pairs: int) -> Row:
    """Against the same requests to the store, of as many blocks at a time, with nothing decoded."""

    def ours() -> float:
        return _epoch(_opened(Url(URL)), batch_size)

    def requests() -> float:
        start, records = time.perf_counter(), Packed(located(URL) / "train")
        for shard, (first, last) in enumerate(pairwise(records.index.shards.tolist())):
            edges = [0, *records.index.sizes[first:last].cumsum().tolist()]
            starts, key = edges[: -1 : records.block], f"{KEY}/train/{shard:05}.bin"
            fsspec.filesystem("s3").cat_ranges([key] * len(starts), starts, [*starts[1:], edges[-1]])
        return time.perf_counter() - start

    found, count = paired(ours, requests, pairs), len(_opened(Url(URL)))
    return _row(name, count, found, "the same requests alone", wanted)


def _second(name: str, wanted: str, pack: Path, batch_size: int, pairs: int) -> Row:
    """Reading from the cache, against the same pack in local files."""
    cached = through_cache(_opened(Url(URL)), Cache(memory=Size.parse("1GB")), URL)
    _epoch(cached, batch_size)
    local = _opened(pack)
    found = paired(lambda: _epoch(cached, batch_size), lambda: _epoch(local, batch_size), pairs)
    return _row(name, len(local), found, "local files, warm", wanted)


def _row(name: str, count: int, found: Paired, peer: str, wanted: str) -> Row:
    ratio = 1 / found.ratio
    return Row(name, count / found.ours, "samples/s", peer, count / found.theirs, ratio, wanted, "higher")


def _opened(folder: Location) -> Pipeline:
    """The training part, with nothing kept that was decoded."""
    return PackedShards(folder=folder, cache_mb=0).open("train")


@contextmanager
def _store(pack: Path) -> Iterator[None]:
    """A server that has the pack; what reads s3:// in this process finds it."""
    server = subprocess.Popen([sys.executable, "-c", _SERVER], stdin=PIPE, stdout=PIPE, stderr=DEVNULL, text=True)
    try:
        assert server.stdout is not None
        host, port = server.stdout.readline().split()
        os.environ.update(_SETTINGS, AWS_ENDPOINT_URL=f"http://{host}:{port}")
        store = fsspec.filesystem("s3", skip_instance_cache=True)
        store.mkdir(KEY.partition("/")[0])
        store.put(str(pack), KEY, recursive=True)
        yield
        store.clear_instance_cache()
    finally:
        server.kill()
        server.communicate()


def _epoch(samples: Pipeline, batch_size: int) -> float:
    start, touched = time.perf_counter(), 0
    feed = Feed(samples, batch_size)
    feed.limit(feed.steps_per_epoch or 0)
    for batch in feed:
        touched += int(batch.inputs[0, 0, 0, 0] >= 0)
    return time.perf_counter() - start
