"""Other input pipelines, where they are installed: each in its own format, with the same decoder as ours.

Installed into an environment of their own (`pip install webdataset mosaicml-streaming litdata torchdata`). Each module
is imported where it is used: some of them change how the process that imports them starts others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from _input_peers import Files, Same

WORKERS = 2
SHARDS = 8  # at least one a worker


@dataclass(frozen=True)
class Written:
    """Files as a peer reads them. at: the folder of what it wrote of them."""

    files: Files
    at: Path
    decode: Same
    batch_size: int


@dataclass(frozen=True)
class Other:
    """A peer. prepare: writes files, shuffled, in its own format. loader: batches (inputs, ...) of what was written."""

    name: str
    module: str
    prepare: Callable[[Files, Sequence[int], Path], None]
    loader: Callable[[Written], Any]

    def why_not(self) -> str:
        """Why it cannot be measured here; empty if it can."""
        try:
            import_module(self.module)
        except Exception as problem:  # a wheel that was built for another torch raises whatever it likes
            return " ".join(str(problem).split())
        return ""

    def epoch_seconds(self, written: Written) -> float:
        """From the constructor to the last batch. Raises ValueError if samples are missing."""
        start, seen = time.perf_counter(), 0
        for inputs, *_ in self.loader(written):
            assert inputs[0, 0, 0, 0] >= 0
            seen += len(inputs)
        seconds = time.perf_counter() - start
        if seen != len(written.files):
            raise ValueError(f"{self.name} gave {seen} of {len(written.files)} samples")
        return seconds


def written(other: Other, folder: Path, files: Files, decode: Same, batch_size: int) -> Written:
    """The files in its own format, written to a folder below `folder` the first time."""
    at = folder / other.module.partition(".")[0]
    if not at.exists():
        at.mkdir(parents=True)
        other.prepare(files, np.random.default_rng(0).permutation(len(files)).tolist(), at)
    return Written(files, at, decode, batch_size)


class Decoded:
    """A sample's bytes and label, decoded."""

    def __init__(self, decode: Same) -> None:
        self._decode = decode

    def __call__(self, sample: Any) -> tuple[np.ndarray, int]:
        return self._decode(sample[0]), int(sample[1])


def _write_nothing(files: Files, order: Sequence[int], at: Path) -> None:
    """Write nothing: the other side reads the files themselves."""


def _stateful(of: Written) -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(of.files, of.batch_size, shuffle=True, num_workers=WORKERS)


def _write_tars(files: Files, order: Sequence[int], at: Path) -> None:
    import webdataset

    for shard in range(SHARDS):
        with webdataset.TarWriter(str(at / f"{shard:05}.tar")) as tar:
            for index in order[shard::SHARDS]:
                content, label = files.stored(index)
                tar.write({"__key__": f"{index:08}", "jpg": content, "cls": str(label).encode()})


def _webdataset(of: Written) -> Any:
    import webdataset

    tars = [str(path) for path in sorted(of.at.glob("*.tar"))]
    samples = webdataset.WebDataset(tars, shardshuffle=SHARDS).shuffle(1000).to_tuple("jpg", "cls")
    return DataLoader(samples.map(Decoded(of.decode)).batched(of.batch_size), batch_size=None, num_workers=WORKERS)


def _write_mds(files: Files, order: Sequence[int], at: Path) -> None:
    from streaming import MDSWriter

    with MDSWriter(out=str(at), columns={"image": "bytes", "label": "int"}) as writer:
        for index in order:
            content, label = files.stored(index)
            writer.write({"image": content, "label": label})


def _streaming(of: Written) -> Iterator[Any]:
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    class Images(StreamingDataset):  # type: ignore[misc]  # of a library without types
        def __getitem__(self, at: int) -> Any:
            sample = super().__getitem__(at)
            return of.decode(sample["image"]), sample["label"]

    samples = Images(local=str(of.at), shuffle=True, batch_size=of.batch_size)
    yield from DataLoader(samples, of.batch_size, num_workers=WORKERS)
    del samples
    clean_stale_shared_memory()


def _write_chunks(files: Files, order: Sequence[int], at: Path) -> None:
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(str(at), chunk_bytes="16MB")
    for place, index in enumerate(order):
        content, label = files.stored(index)
        writer[place] = (content, label)
    writer.done()
    writer.merge(1)


def _litdata(of: Written) -> Any:
    from litdata import StreamingDataLoader, StreamingDataset

    class Images(StreamingDataset):  # type: ignore[misc]  # of a library without types
        def __getitem__(self, index: Any) -> Any:
            content, label = super().__getitem__(index)
            return of.decode(content), label

    samples = Images(str(of.at), shuffle=True, drop_last=False)
    return StreamingDataLoader(samples, batch_size=of.batch_size, num_workers=WORKERS)


OTHERS = (
    Other("StatefulDataLoader", "torchdata.stateful_dataloader", _write_nothing, _stateful),
    Other("WebDataset", "webdataset", _write_tars, _webdataset),
    Other("MosaicML Streaming", "streaming", _write_mds, _streaming),
    Other("LitData", "litdata", _write_chunks, _litdata),
)
