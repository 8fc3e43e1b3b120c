"""Does the input pipeline keep up with decoding, and how does it compare with torch's DataLoader and with others?

Photographs of 500 x 375 made to 224 x 224, and CIFAR-10's JPEG files of 0.9 kB (the data sets beside the checkout), in
batches of 128 as bytes that a consumer only touches. An epoch counts from the constructor to the last batch, with the
first batch and the start of workers. The files are listed beforehand, for the peer and for us; ours reads the index of
a pack. The limit is decoding the same files from memory, one process a core. DataLoader has the number of workers, of
0, 1, 2 and 4, with which an epoch was shortest. Cold: the page cache is dropped before each epoch, as root. Ours and
the other take turns.
CIFAR-10's files are compared with loaders as a pack, which is what we advise for files so small. WebDataset, MosaicML
Streaming, LitData and StatefulDataLoader are measured where they are installed, each with its own format and 2 workers;
the best of them is the peer. Remote: a pack in a server that speaks S3 (moto), which runs in a process of its own here.

    python benchmarks/input.py --only photos-warm
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import torch

from _input_data import cifar, drop_page_cache, may_drop, packed, photos
from _input_limit import Limit, reading_seconds
from _input_others import OTHERS, written
from _input_peers import WORKERS, Files, Same, Textbook, best_workers, epoch_seconds
from _input_remote import remote_rows
from _report import Options, Paired, Row, arguments, paired, report
from volary.data.decoding.images import ACCEPTED, SUFFIXES
from volary.data.feed import Feed
from volary.data.records.classes import InClasses, list_classes
from volary.data.samples import Samples
from volary.data.sources.images import Images
from volary.data.sources.packed import PackedShards

BATCH = 128
SIDE = {"photos": 224, "cifar": None}
ROWS = {
    "photos-warm": "at least 0.95",
    "photos-warm-long": "at least 0.97",
    "photos-warm-pil": "at least 2.4",
    "photos-warm-same": "at least 1.2",
    "photos-warm-peers": "at least 1.2",
    "photos-cold-files": "at least 0.85",
    "photos-cold-pack": "at least 0.92",
    "cifar-warm-pack": "at least 0.92",
    "cifar-warm-files": "at least 0.62",
    "cifar-warm-same": "at least 2.6",
    "cifar-warm-pil": "at least 8",
    "cifar-warm-peers": "at least 2.6",
    "cifar-cold-pack": "at least 0.92",
    "cifar-cold-files": "at least 0.95",
    "memory": "at most 0.6",
    "first-batch-photos": "at most 0.11 s",
    "first-batch-cifar": "at most 0.02 s",
    "resume": "at most 0.02 s",
    "remote-first": "at least 0.9",
    "remote-second": "at least 0.98",
}


class Numbers:
    """10 million samples in storage that say which they are: what is left is the order, and finding a place in it."""

    block, classes, scale, input_shape, input_dtype = 64, None, None, (), torch.int64

    def __len__(self) -> int:
        return 10_000_000

    def prefetch(self, indices: torch.Tensor, epoch: int) -> bool:
        """Nothing to do."""
        return False

    def fetch(self, indices: torch.Tensor, epoch: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """The numbers."""
        return indices, indices

    def take(self, indices: torch.Tensor, epoch: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The numbers."""
        return indices, indices


class Data:
    """The files and packs of this run, made when a row first needs them."""

    def __init__(self, folder: Path, quick: bool) -> None:
        self._folder = folder
        self._counts = {
            "photos": 384 if quick else 2000,
            "cifar": 6400 if quick else 50_000,
            "remote": 6400 if quick else 12_800,  # moto's server is slow with parts of large shards
        }
        self._made: dict[str, Path | None] = {}
        self._listed: dict[str, InClasses] = {}

    def files(self, kind: str) -> Path | None:
        """The folder of image files; None if they cannot be had here."""
        if kind not in self._made:
            make = photos if kind == "photos" else cifar
            self._made[kind] = make(self._folder / kind, self._counts[kind])
        return self._made[kind]

    def listed(self, kind: str) -> InClasses:
        """The files of the training part."""
        if kind not in self._listed:
            files = self.files(kind)
            assert files is not None
            self._listed[kind] = list_classes(files / "train", SUFFIXES, ACCEPTED)
        return self._listed[kind]

    def pack(self, kind: str) -> Path:
        """The same in shards."""
        at = self._folder / f"{kind}-packed"
        files = self.files(kind)
        assert files is not None
        return at if at.exists() else packed(files, at)


def main() -> None:
    """Measure the rows that were asked for."""
    options = arguments(__doc__, list(ROWS))
    with tempfile.TemporaryDirectory() as folder:
        data = Data(Path(folder), options.quick)
        report([row for name in ROWS if options.wants(name) for row in measured(name, data, options)], options.json)


def measured(name: str, data: Data, options: Options) -> list[Row]:
    """The row, or none with the reason."""
    kind = next((kind for kind in ("cifar", "remote") if kind in name), "photos")
    if data.files(kind) is None:
        print(f"{name}: left out, there is no ../shared/data/cifar10 beside the checkout")
        return []
    if "cold" in name and not may_drop():
        print(f"{name}: left out, only root may drop the page cache")
        return []
    pairs = 3 if options.quick else 7
    if name == "memory":
        return [_memory(data)]
    if name.startswith("first-batch"):
        return [_first_batch(name, data, kind, pairs)]
    if name == "resume":
        return [_resume(pairs)]
    if name == "cifar-cold-pack":
        return [_cold_against_warm(name, data, kind, pairs)]
    if name == "cifar-cold-files":
        return [_against_reading(name, data, kind, pairs)]
    if name.endswith("-peers"):
        return _against_others(name, data, kind, pairs)
    if name.startswith("remote"):
        return remote_rows(name, ROWS[name], data.pack(kind), BATCH, pairs)
    if name.endswith(("-pil", "-same")):
        return [_against_loader(name, data, kind, pairs)]
    return [_against_limit(name, data, kind, pairs)]


def opened(data: Data, kind: str, way: str) -> Samples:
    """The training part, with nothing kept from epoch to epoch."""
    if way == "pack":
        return PackedShards(folder=data.pack(kind), size=SIDE[kind], cache_mb=0).open("train")
    files, listed = data.files(kind), data.listed(kind)
    assert files is not None
    images = Images(folder=files, size=SIDE[kind], cache_mb=0)
    return images.decoded(listed.records, torch.from_numpy(listed.labels), len(listed.folders), "train")


def ours(data: Data, kind: str, way: str, epochs: int = 1) -> float:
    """Seconds of so many epochs."""
    start, touched = time.perf_counter(), 0
    feed = Feed(opened(data, kind, way), BATCH)
    feed.limit(epochs * (feed.steps_per_epoch or 0))
    for batch in feed:
        touched += int(batch.inputs[0, 0, 0, 0] >= 0)
    return time.perf_counter() - start


def _count(data: Data, kind: str) -> int:
    return len(opened(data, kind, "files"))


def _row(name: str, count: int, found: Paired, peer: str) -> Row:
    """A row of seconds of an epoch; the ratio is of rates."""
    print(f"{name}: 1 / ratio {found.ratio:.3f} ± {found.spread:.3f}")
    return Row(name, count / found.ours, "samples/s", peer, count / found.theirs, 1 / found.ratio, ROWS[name], "higher")


def _against_limit(name: str, data: Data, kind: str, pairs: int) -> Row:
    way, cold = "pack" if name.endswith("pack") else "files", "cold" in name
    epochs = 5 if name.endswith("long") else 1
    opened(data, kind, way)
    with _limit(data, kind) as limit:
        found = paired(
            lambda: _dropped(cold, lambda: ours(data, kind, way, epochs)),
            lambda: sum(limit.seconds() for _ in range(epochs)),
            pairs,
        )
    return _row(name, epochs * _count(data, kind), found, "decoding from memory, a process a core")


def _against_loader(name: str, data: Data, kind: str, pairs: int) -> Row:
    folder = data.files(kind)
    assert folder is not None
    textbook = name.endswith("pil")
    files = Files(folder, Textbook(SIDE[kind] or 32) if textbook else Same(SIDE[kind]))
    workers = best_workers(files, BATCH, (2,) if textbook else WORKERS)
    way = _compared_way(data, kind)
    found = paired(lambda: ours(data, kind, way), lambda: epoch_seconds(files, BATCH, workers), pairs)
    what = "textbook Pillow" if textbook else "the same decoder"
    return _row(name, _count(data, kind), found, f"DataLoader, {what}, {workers} workers")


def _compared_way(data: Data, kind: str) -> str:
    """In which form ours reads what loaders read from files or from formats of their own."""
    if kind == "photos":
        return "files"
    data.pack(kind)
    return "pack"


def _against_others(name: str, data: Data, kind: str, pairs: int) -> list[Row]:
    folder = data.files(kind)
    assert folder is not None
    decode, way = Same(SIDE[kind]), _compared_way(data, kind)
    files, tried = Files(folder, decode), {}
    for other in OTHERS:
        if why := other.why_not():
            print(f"{name}: without {other.name} ({why})")
            continue
        source = written(other, folder.with_name(f"{kind}-others"), files, decode, BATCH)
        tried[other] = partial(other.epoch_seconds, source)
    if not tried:
        print(f"{name}: left out, none of {', '.join(other.name for other in OTHERS)} is installed")
        return []
    seconds = {other: min(epoch() for _ in range(2)) for other, epoch in tried.items()}
    print(f"{name}: " + ", ".join(f"{other.name} {len(files) / seconds[other]:.0f}/s" for other in seconds))
    best = min(seconds, key=lambda other: seconds[other])
    found = paired(lambda: ours(data, kind, way), tried[best], pairs)
    return [_row(name, len(files), found, f"{best.name}, the best of {len(tried)}, 2 workers")]


def _against_reading(name: str, data: Data, kind: str, pairs: int) -> Row:
    folder = data.files(kind)
    assert folder is not None
    files = sorted((folder / "train").rglob("*.jpg"))
    threads = min((1, 8, 32), key=lambda count: _dropped(True, lambda: reading_seconds(files, count)))
    found = paired(
        lambda: _dropped(True, lambda: ours(data, kind, "files")),
        lambda: _dropped(True, lambda: reading_seconds(files, threads)),
        pairs,
    )
    return _row(name, len(files), found, f"reading alone, {threads} threads")


def _cold_against_warm(name: str, data: Data, kind: str, pairs: int) -> Row:
    opened(data, kind, "pack")
    found = paired(lambda: _dropped(True, lambda: ours(data, kind, "pack")), lambda: ours(data, kind, "pack"), pairs)
    return _row(name, _count(data, kind), found, "ours, warm")


def _dropped(cold: bool, epoch: Callable[[], float]) -> float:
    if cold:
        drop_page_cache()
    return epoch()


def _first_batch(name: str, data: Data, kind: str, pairs: int) -> Row:
    def ours_first() -> float:
        start = time.perf_counter()
        next(Feed(opened(data, kind, "files"), BATCH))
        return time.perf_counter() - start

    folder = data.files(kind)
    assert folder is not None
    files = Files(folder, Same(SIDE[kind]))

    def theirs_first() -> float:
        start = time.perf_counter()
        next(iter(torch.utils.data.DataLoader(files, BATCH, shuffle=True, num_workers=2)))
        return time.perf_counter() - start

    found = paired(ours_first, theirs_first, pairs)
    peer = "DataLoader, the same decoder, 2 workers"
    return Row(name, found.ours, "s", peer, found.theirs, found.ours, ROWS[name], "lower")


def _resume(pairs: int) -> Row:
    def first(state: dict[str, int] | None) -> float:
        start = time.perf_counter()
        feed = Feed(Numbers(), BATCH)
        if state:
            feed.restore(state)
        next(feed)
        return time.perf_counter() - start

    state = Feed(Numbers(), BATCH).state() | {"epoch": 3, "position": 9_000_000, "step": 300_000}
    print(f"resume: the position is {len(str(state))} bytes as text")
    found = paired(lambda: first(state), lambda: first(None), 4 * pairs)
    more = found.ours - found.theirs
    return Row("resume", found.ours, "s", "a fresh start", found.theirs, more, ROWS["resume"], "lower")


def _memory(data: Data) -> Row:
    """Peak above a bare process, proportional, in processes of their own."""
    folder = data.files("photos")
    assert folder is not None
    files = Files(folder, Same(SIDE["photos"]))
    bare = statistics.median(_peak(_nothing) for _ in range(3))
    mine = statistics.median(_peak(ours, data, "photos", "files") for _ in range(3)) - bare
    theirs = statistics.median(_peak(epoch_seconds, files, BATCH, 2) for _ in range(3)) - bare
    peer = "DataLoader, the same decoder, 2 workers"
    return Row("memory", mine / 2**20, "MiB", peer, theirs / 2**20, mine / theirs, ROWS["memory"], "lower")


def _nothing() -> None:
    time.sleep(0.5)


def _peak(work: Callable[..., object], *arguments: object) -> int:
    """The most proportional memory that a process doing `work`, and its children, had."""
    process = torch.multiprocessing.get_context("spawn").Process(target=work, args=arguments)
    process.start()
    watched, peak = psutil.Process(process.pid), 0
    while process.is_alive():
        total = 0
        for one in (watched, *_children(watched)):
            try:
                total += one.memory_full_info().pss
            except psutil.Error:
                continue
        peak = max(peak, total)
        time.sleep(0.01)
    process.join()
    return peak


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        found: list[psutil.Process] = process.children(recursive=True)
        return found
    except psutil.Error:
        return []


@contextmanager
def _limit(data: Data, kind: str) -> Iterator[Limit]:
    folder = data.files(kind)
    assert folder is not None
    limit = Limit(sorted((folder / "train").rglob("*.jpg")), SIDE[kind])
    try:
        yield limit
    finally:
        limit.close()


if __name__ == "__main__":
    main()
