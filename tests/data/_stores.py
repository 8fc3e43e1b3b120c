"""A real S3 server for tests, and data of every kind written to a folder, to be copied there."""

from __future__ import annotations

import io
import struct
import tarfile
import wave
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import fsspec
import numpy as np
import pytest
from PIL import Image

from volary.data.preparation.packing import pack
from volary.data.sources import ROOM
from volary.data.sources.images import Images

COUNT = 24
SPLITS = ("train", "test")


@contextmanager
def s3_server() -> Iterator[str]:
    """moto's server on a free port; gives its address. What reads s3:// in this process finds it."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    # moto keeps what an earlier server of this process had
    urlopen(Request(f"http://{host}:{port}/moto-api/reset", method="POST"), timeout=30).close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "someone")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "something")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        fsspec.filesystem("s3", skip_instance_cache=True).mkdir("bucket")
        yield f"http://{host}:{port}"
        fsspec.filesystem("s3").clear_instance_cache()
    server.stop()


def put(folder: Path, url: str) -> None:
    """Copy all files to a store."""
    store, key = fsspec.url_to_fs(url)
    for path in folder.rglob("*"):
        if path.is_file():
            store.pipe_file(f"{key}/{path.relative_to(folder)}", path.read_bytes())
    store.invalidate_cache()


def jpeg(number: int) -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, "JPEG")
    return buffer.getvalue()


def images(folder: Path) -> None:
    for split in SPLITS:
        for number in range(COUNT):
            path = folder / split / "abc"[number % 3] / f"{number:03}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(jpeg(number))


def tars(folder: Path) -> None:
    for split in SPLITS:
        with tarfile.open(
            folder / f"{split}.tar{'.gz' if split == 'test' else ''}", "w:" + "gz" * (split == "test")
        ) as tar:
            for number in range(COUNT):
                _add(tar, f"{'abc'[number % 3]}/{number:03}.jpg", jpeg(number))


def shards(folder: Path) -> None:
    for split in SPLITS:
        for shard in range(2):
            with tarfile.open(folder / f"{split}-{shard}.tar", "w") as tar:
                for number in range(shard * COUNT // 2, (shard + 1) * COUNT // 2):
                    _add(tar, f"{number:03}.jpg", jpeg(number))
                    _add(tar, f"{number:03}.cls", str(number % 3).encode())


def lists(folder: Path) -> None:
    images(folder)
    for split in SPLITS:
        rows = [f"{split}/{'abc'[number % 3]}/{number:03}.jpg {number % 3}\n" for number in range(COUNT)]
        (folder / f"{split}.txt").write_text("".join(rows))


def packs(folder: Path) -> None:
    images(folder / "files")
    for split in SPLITS:
        pack(Images(folder=folder / "files").open(split), folder / split, 4096, lambda _: None)  # type: ignore[arg-type]


def idx(folder: Path) -> None:
    for split in ("train", "t10k"):
        pixels, labels = bytes(range(4)) * COUNT, bytes(number % 3 for number in range(COUNT))
        (folder / f"{split}-images").write_bytes(struct.pack(">4B3I", 0, 0, 8, 3, COUNT, 2, 2) + pixels)
        (folder / f"{split}-labels").write_bytes(struct.pack(">4BI", 0, 0, 8, 1, COUNT) + labels)


def cifar(folder: Path) -> None:
    for name in ("data_batch_1.bin", "test_batch.bin"):
        (folder / name).write_bytes((b"\1" + bytes(3072)) * COUNT)


def arrays(folder: Path) -> None:
    for split in SPLITS:
        np.save(folder / f"{split}_inputs.npy", np.arange(3 * COUNT, dtype=np.float32).reshape(-1, 3))
        np.save(folder / f"{split}_targets.npy", np.arange(COUNT) % 3)


def zipped(folder: Path) -> None:
    for split in SPLITS:
        inputs = np.arange(3 * COUNT, dtype=np.float32).reshape(-1, 3)
        np.savez(folder / f"{split}.npz", inputs=inputs, targets=np.arange(COUNT) % 3)


def csv(folder: Path) -> None:
    for split in SPLITS:
        rows = [f"{number},{number % 3}\n" for number in range(COUNT)]
        (folder / f"{split}.csv").write_text("height,kind\n" + "".join(rows))


def parquet(folder: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"image": [jpeg(number) for number in range(COUNT)], "label": [0, 1, 2] * (COUNT // 3)})
    (folder / "train").mkdir()
    pyarrow.parquet.write_table(table, folder / "train" / "0.parquet")
    with pyarrow.OSFile(str(folder / "test.arrow"), "wb") as file, pyarrow.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def lmdb(folder: Path) -> None:
    import lmdb as library

    pixels = bytes([8, 1, 16, 2, 24, 2, 34, 4, 1, 2, 3, 4, 40, 0])  # channels 1, height 2, width 2, data, label 0
    for split in SPLITS:
        with library.open(str(folder / split), map_size=2**20) as opened, opened.begin(write=True) as writing:
            for number in range(COUNT):
                writing.put(f"{number:04}".encode(), pixels[:-1] + bytes([number % 3]))


def wavs(folder: Path) -> None:
    for split in SPLITS:
        for number in range(4):
            path = folder / split / "ab"[number % 2] / f"{number}.wav"
            path.parent.mkdir(parents=True, exist_ok=True)
            with wave.open(str(path), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(8000)
                file.writeframes(np.random.default_rng(number).integers(-999, 999, 800, dtype=np.int16).tobytes())


def text(folder: Path) -> None:
    (folder / "text.txt").write_text("to be or not to be " * 40)
    (folder / "merges.txt").write_text("#version\nt o\nb e\n")


KINDS: dict[str, tuple[Callable[[Path], None], Callable[[Any], dict[str, Any]]]] = {
    "images": (images, lambda at: {"name": "images", "folder": at("")}),
    "tars": (tars, lambda at: {"name": "images", "folder": at("")}),
    "shards": (shards, lambda at: {"name": "shards", "folder": at("")}),
    "list": (lists, lambda at: {"name": "list", "train": at("train.txt"), "test": at("test.txt")}),
    "packed": (packs, lambda at: {"name": "packed", "folder": at("")}),
    "idx": (idx, lambda at: {"name": "idx", "folder": at("")}),
    "cifar": (cifar, lambda at: {"name": "cifar", "folder": at("")}),
    "arrays": (arrays, lambda at: {"name": "arrays", "folder": at("")}),
    "zipped": (zipped, lambda at: {"name": "arrays", "folder": at("")}),
    "csv": (csv, lambda at: {"name": "csv", "train": at("train.csv"), "test": at("test.csv"), "target": "kind"}),
    "parquet": (parquet, lambda at: {"name": "parquet", "train": at("train"), "test": at("test.arrow")}),
    "lmdb": (lmdb, lambda at: {"name": "lmdb", "train": at("train"), "test": at("test"), "channels": 1}),
    "wav": (wavs, lambda at: {"name": "wav", "folder": at(""), "rate": 8000, "seconds": 0.1, "mels": 4}),
    "text": (text, lambda at: {"name": "text", "path": at("text.txt"), "merges": at("merges.txt"), "length": 4}),
    "mix": (images, lambda at: {"name": "mix", "sources": [{"name": "images", "folder": at("")}] * 2}),
}
WITHOUT_FILES = {"digits", "synthetic", "documents", "huggingface", "torchvision"}  # or of this machine alone
ALL = set(ROOM.names())


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))
