"""The session that a new user begins with, for data that was looked at: plain settings that train on any machine."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from volary.data.looking.array_files import SeenArrays
from volary.data.looking.class_folders import ClassFolders
from volary.data.looking.pictures import Picture
from volary.data.looking.sounds import SeenSounds
from volary.data.looking.table_columns import SeenTable

SMALL, LARGE = 48, 64  # pixels: images up to SMALL are taken as small ones, all others become LARGE
BATCH = 32
STEPS = 600  # that few samples are learnt from, within limits
VALIDATION = 0.2
_WORKERS = "  workers: 1                # training processes on this machine"
MOST_IN_MATRIX = 100  # classes that the metric `confusion` takes


def of_image_folders(path: Path, found: ClassFolders, shown: Sequence[Picture]) -> str:
    """The session of class folders; those of one part alone are divided."""
    network, source = _of_images(_of_folders("images", path, found), shown)
    return _plan_of(found, network, source).text()


def of_sound_folders(path: Path, found: ClassFolders, seen_sounds: SeenSounds) -> tuple[str, str]:
    """The session of class folders of sounds, and, if there can be none, an empty one and why."""
    if len(seen_sounds.rates) > 1:
        rates = " and ".join(f"{rate:,}" for rate in sorted(seen_sounds.rates))
        return "", f"{path}: has sounds of {rates} samples a second; accepted: all of one rate"
    source = _of_folders("wav", path, found) | {"rate": next(iter(seen_sounds.rates)), "seconds": seen_sounds.clip_s}
    layers = [f"{{conv: {{channels: {width}, kernel: 3, padding: same}}}}" for width in (16, 32, 64)]
    lines = [f"    - {line}" for layer in layers for line in (layer, "relu", "{pool: {size: 2}}")]
    text = "\n".join(
        ["network:", "  layers:", *lines, "    - {pool: {kind: average, size: global}}", *_last("classes")]
    )
    return _plan_of(found, text, source).text(), ""


def of_arrays(found: SeenArrays) -> str:
    """The session of arrays; those of a training part alone are divided."""
    source: dict[str, object] = {"name": "arrays", "folder": str(found.folder)}
    source |= {} if found.inputs == "inputs" else {"inputs": found.inputs}
    source |= {} if found.targets == "targets" else {"targets": found.targets}
    width = math.prod(found.target_shape)
    hidden = ["    - flatten"] * (len(found.input_shape) > 1) + ["    - linear: {outputs: 256}", "    - relu"]
    last = _last("classes" if found.classes else str(width))
    shaped = not found.classes and len(found.target_shape) != 1  # else it is that of a linear layer
    reshaped = [f"    - reshape: {{shape: {list(found.target_shape)}}}"] if shaped else []
    text = "\n".join(["network:", "  layers:", *hidden, *last, *reshaped])
    samples, classes = found.rows["train"], len(found.classes)
    return _Plan(network=text, source=source, samples=samples, classes=classes, divided="test" not in found.rows).text()


def of_text(path: Path, *, folder: bool) -> str:
    """The session of a text file, or of a folder of such, whose symbols are characters."""
    source: dict[str, object] = {"name": "text", "path": str(path)}
    if folder:
        source = {"name": "documents", "folder": str(path), "tokens": f"{path}.tokens"}
    lines = ["network: {name: lstm, hidden: 256, layers: 1, embedding: 32}", "", "data:", "  source:"]
    lines += [f"    {name}: {_value(value)}" for name, value in source.items()]
    lines += [f"  batch_size: {BATCH}            # samples per step, over all workers", ""]
    lines += [
        "loss: {name: cross_entropy, metric: bits_per_character}",
        "",
        "optimizer:",
        "  name: adam",
        "  lr: 0.002",
    ]
    lines += ["", "train:", "  epochs: 5", "  clip_norm: 1.0", "", "strategy:", _WORKERS]
    return "\n".join(lines) + "\n"


def _of_folders(name: str, path: Path, found: ClassFolders) -> dict[str, object]:
    """The settings of a source of class folders: where its parts are."""
    parts = dict(zip(("train", "test"), found.parts, strict=False))
    return {"name": name, "folder": str(path), **parts}


def _plan_of(found: ClassFolders, network: str, source: dict[str, object]) -> _Plan:
    samples, classes = found.counts["train"], len(found.classes)
    return _Plan(network=network, source=source, samples=samples, classes=classes, divided=len(found.parts) == 1)


def of_table(path: Path, table: SeenTable, shown: Sequence[Picture]) -> tuple[str, str]:
    """The session of a table, and, if there can be none, an empty one and why."""
    usable, target = table.columns, table.target
    source: dict[str, object]
    if any(one.missing for one in usable if one.name == target):
        return "", f"{path}: the column {target!r} has rows without a value; accepted: another column to predict"
    if table.classifies and len(table.classes) < 2:
        return "", f"{path}: the column {target!r} has one value alone; accepted: another column to predict"
    if shown:
        image = next(one.name for one in usable if one.kind == "image")
        source = {"name": "parquet", "train": str(path), "inputs": [image], "target": target}
        if not table.classifies:
            return "", f"{path}: the column {target!r} is a number, of an image; accepted: a column of classes"
        network, source = _of_images(source, shown)
        return _Plan(network=network, source=source, samples=table.rows, classes=len(table.classes)).text(), ""
    inputs = [one for one in usable if one.kind == "number" and one.name != target]
    if not inputs:
        return "", f"{path}: has no column of numbers beside {target!r}; accepted: one or more to predict from"
    names = [one.name for one in inputs]
    lacking = {"missing": "mean"} if any(one.missing for one in inputs) else {}
    if table.separator:
        source = {"name": "csv", "train": str(path), "target": target}
        source |= {} if len(inputs) == len(usable) - 1 else {"columns": names}
        source |= {} if table.separator == "," else {"separator": table.separator}
        source |= {} if table.classifies else {"kind": "number"}
    else:
        if not table.classifies:
            return "", f"{path}: the column {target!r} is a number; accepted: a column of classes, or the table as CSV"
        source = {"name": "parquet", "train": str(path), "inputs": names, "target": target}
    text = "\n".join(["network:", "  layers:", *_layers(len(inputs), table)])
    plan = _Plan(network=text, source=source | lacking, samples=table.rows, classes=len(table.classes), rate=0.01)
    return plan.text(), ""


def _of_images(source: dict[str, object], shown: Sequence[Picture]) -> tuple[str, dict[str, object]]:
    """The network's text, and the source with the size that all images get."""
    sides = sorted(min(one.width, one.height) for one in shown)
    small = sides[len(sides) // 2] <= SMALL
    channels = 1 if all(one.grey for one in shown) else 3
    network = "network: cifar10_quick" if small else "network: {name: resnet, depth: 18}"
    about = {"size": 32 if small else LARGE, "channels": channels, "mean": [0.5], "std": [0.25]}
    return network, source | about


def _layers(inputs: int, table: SeenTable) -> list[str]:
    width = 64 if inputs < 64 else 256
    return [f"    - linear: {{outputs: {width}}}", "    - relu", *_last("classes" if table.classifies else "1")]


def _last(outputs: str) -> list[str]:
    return [f"    - linear: {{outputs: {outputs}}}"]


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """network: its lines. source: its settings. samples: of the training part, which is divided if there is no other.

    classes: 0 if the target is a number.
    """

    network: str
    source: dict[str, object]
    samples: int
    classes: int
    divided: bool = True
    rate: float = 0.001

    def text(self) -> str:
        """The text of the session, which reads as one."""
        epochs = max(20, min(60, STEPS * BATCH // self.samples))
        confusion = ", metrics: [confusion]" if self.classes <= MOST_IN_MATRIX else ""
        lines = [self.network, "", "data:", "  source:"]
        lines += [f"    {name}: {_value(value)}" for name, value in self.source.items()]
        lines.append(f"  batch_size: {BATCH}            # samples per step, over all workers")
        if self.divided:
            alike = ", stratify: true" if self.classes else ""
            lines.append(f"  split: {{validation: {VALIDATION}{alike}}}  # of all samples")
        lines += ["", f"loss: {{name: cross_entropy{confusion}}}" if self.classes else "loss: mse"]
        lines += ["", "optimizer:", "  name: adam", f"  lr: {self.rate}", "", "train:", f"  epochs: {epochs}", ""]
        lines += ["strategy:", _WORKERS]
        return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    """A value as YAML, which JSON is; plain words as they are."""
    plain = isinstance(value, str) and value.isidentifier() and value not in ("null", "true", "false")
    return str(value) if plain else json.dumps(value, ensure_ascii=False)
