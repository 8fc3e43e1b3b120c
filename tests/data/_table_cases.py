"""Cases for tests/data/test_table_variants.py: files of tables, arrays, IDX, lists and text, and their values."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from volary.data.sources import ROOM

NAN = float("nan")
TABLE = "label,a,b\n0,1,2\n1,3,4\n"
ROWS = [[1.0, 2.0], [3.0, 4.0]]


@dataclass(frozen=True)
class Case:
    """Files, as bytes or what writes them, and what `part` gives: its inputs, or the sentence of a refusal."""

    files: dict[str, Any]
    expected: Any
    settings: dict[str, Any] = field(default_factory=dict)
    part: str = "train"
    remarks: tuple[str, ...] = ()

    def opened(self, source: str, folder: Path) -> Any:
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if callable(content):
                content(path)
            else:
                path.write_bytes(content.encode() if isinstance(content, str) else content)
        settings = {
            name: folder / value if name in ("train", "test", "folder", "path", "merges") else value
            for name, value in self.settings.items()
        }
        made = ROOM.load(source)(**settings)
        made.check()
        return made.open(self.part)


def csv(content: str | bytes, expected: Any = ROWS, *, test: str | None = None, remarks=(), **settings: Any) -> Case:
    files = {"train.csv": content, "test.csv": content if test is None else test}
    given = {"train": "train.csv", "test": "test.csv", "target": "label", "standardise": False} | settings
    return Case(files, expected, given, "train" if test is None else "test", remarks)


def shards(*tables: Callable[[Any], Any], expected: Any, remarks=(), **settings: Any) -> Case:
    def write(make: Callable[[Any], Any]) -> Callable[[Path], None]:
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        return lambda path: parquet.write_table(make(arrow), path)

    files = {f"d/{number}.parquet": lambda path, make=make: write(make)(path) for number, make in enumerate(tables)}
    return Case(files, expected, {"train": "d", "test": "d", "inputs": ("a", "b")} | settings, remarks=remarks)


def rows(
    kind: str = "float64", a: Any = (1, 3), labels: Any = (0, 1), label_kind: str = "int64"
) -> Callable[[Any], Any]:
    def make(arrow: Any) -> Any:
        def column(values: Any, kind: str) -> Any:
            if kind == "dictionary":
                return arrow.array(values).dictionary_encode()
            return arrow.array(values, arrow.decimal128(5, 2) if kind == "decimal" else getattr(arrow, kind)())

        return arrow.table({"label": column(labels, label_kind), "a": column(a, kind), "b": [2, 4]})

    return make


def images(*columns: tuple[str, Any]) -> list[Callable[[Any], Any]]:
    def kind_of(arrow: Any, kind: str) -> Any:
        return None if kind == "structure" else getattr(arrow, kind)()

    return [
        lambda arrow, kind=kind, values=values: arrow.table(
            {"label": [0] * len(values), "image": arrow.array(values, kind_of(arrow, kind))}
        )
        for kind, values in columns
    ]


def picture() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.full((1, 2, 3), 255, dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def arrays(inputs: Any, expected: Any, targets: Any = (0, 1), *, remarks=(), test: Any = None, **settings: Any) -> Case:
    def npy(values: Any) -> Callable[[Path], None]:
        return lambda path: np.save(path, values)

    others = np.asarray(inputs if test is None else test)
    files = {
        "train_inputs.npy": npy(np.asarray(inputs)),
        "train_targets.npy": npy(np.asarray(targets)),
        "test_inputs.npy": npy(others),
        "test_targets.npy": npy(np.asarray(targets)),
    }
    given = {"folder": "."} | settings
    return Case(files, expected, given, "train" if test is None else "test", remarks)


def npy_bytes(values: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


def npz(expected: Any, remarks=(), **more: Any) -> Case:
    def write(path: Path) -> None:
        np.savez(path, **({"inputs": np.array(ROWS, dtype=np.float32), "targets": np.array([0, 1])} | more))

    return Case({"train.npz": write, "test.npz": write}, expected, {"folder": "."}, remarks=remarks)


def idx(expected: Any, remarks=(), **changed: Any) -> Case:
    pixels = struct.pack(">4B3I", 0, 0, 8, 3, 2, 1, 2) + bytes((0, 255, 255, 0))
    labels = struct.pack(">4BI", 0, 0, 8, 1, 2) + bytes((0, 1))
    files = {}
    for part in ("train", "t10k"):
        files |= {f"{part}-images-idx3-ubyte": pixels, f"{part}-labels-idx1-ubyte": labels}
    for name, content in changed.items():
        files[name] = content(pixels if "images" in name else labels)
        if name.endswith(".gz"):
            files.pop(name.removesuffix(".gz"), None)
    return Case(files, expected, {"folder": "."}, "test" if "t10k-labels-idx1-ubyte" in changed else "train", remarks)


def listing(content: str | bytes, expected: Any = ((0, 1), 2), *, test: str | None = None) -> Case:
    files = {"a.png": picture(), "b c.png": picture(), "train.txt": content, "test.txt": test or content}
    settings = {"train": "train.txt", "test": "test.txt"}
    return Case(files, expected, settings, "train" if test is None else "test")


def text(content: str | bytes, expected: Any, remarks=(), **settings: Any) -> Case:
    given = {"path": "t.txt", "length": 2, "validation": 0.5} | settings
    return Case({"t.txt": content}, expected, given, remarks=remarks)
