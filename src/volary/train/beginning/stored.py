"""The tensors of a file that somebody else may have made, by name: their values are read when they are asked for."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open

from volary.errors import RunError, SettingError
from volary.run.checkpoints import MANIFEST, Checkpoints
from volary.run.directory import RunDirectory, is_run
from volary.train.state.state_file import unpacked
from volary.train.state.weights import SavedWeights

if TYPE_CHECKING:
    from torch import Tensor

    from volary.network.starting_weights import StartingWeights

SINGLE = (
    "model.safetensors",
    "pytorch_model.bin",
    "open_clip_model.safetensors",
)  # in a model's folder, the best first
INDEX = ("model.safetensors.index.json", "pytorch_model.bin.index.json")  # of a model in several files
SUFFIXES = (".safetensors", ".pth", ".pt", ".bin", ".ckpt")
HEADER_AT = 8  # a safetensors file has the length of its header, and then JSON


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a file. shape: of it. read: gives its values, in that shape and in the file's type."""

    shape: tuple[int, ...]
    read: Callable[[], Tensor]


Stored = Mapping[str, StoredTensor]


def stored_tensors(weights: StartingWeights) -> Stored:
    """The tensors at the setting's path. Raises SettingError if they cannot be read, or if there are several sets."""
    path = weights.path
    weights.check()
    try:
        if path.is_file():
            return _of_file(path, weights.key)
        if is_run(path) or (path / MANIFEST).is_file():
            return _of_checkpoint(path)
        return _of_model_folder(path, weights.key)
    except (RunError, OSError, SafetensorError) as error:
        raise SettingError(f"network.weights: {path}: cannot be read: {error}") from None


def _of_checkpoint(path: Path) -> Stored:
    """The network's weights in a run's newest whole checkpoint, or the checkpoint in that folder."""
    if is_run(path):
        checkpoints = Checkpoints(RunDirectory(path).checkpoints)
        manifest, damaged = checkpoints.newest_whole()
        if manifest is None:
            raise RunError("; ".join(damaged) or "the run has no checkpoint")
    else:
        checkpoints = Checkpoints(path.parent)
        manifest = checkpoints.verify(int(path.name.rpartition("-")[2]))
    saved = SavedWeights(checkpoints.path(manifest.step), manifest)
    return {name: StoredTensor(saved.shape(name), partial(saved.whole, name)) for name in saved}


def _of_model_folder(path: Path, key: str | None) -> Stored:
    """The weights in a model's folder, or in a hub's cache the snapshot that `refs/main` names, else the only one."""
    if (snapshots := path / "snapshots").is_dir():
        named = path / "refs" / "main"
        revisions = [named.read_text().strip()] if named.is_file() else sorted(one.name for one in snapshots.iterdir())
        if len(revisions) != 1 or Path(revisions[0]).name != revisions[0]:
            raise SettingError(
                f"network.weights: {path} has {len(revisions)} snapshots; accepted: one of them, as "
                f"{snapshots / (revisions or ['...'])[0]}"
            )
        path = snapshots / revisions[0]
    for name in INDEX:
        if (index := path / name).is_file():
            parts = sorted(set(json.loads(index.read_text())["weight_map"].values()))
            if any(Path(part).name != part for part in parts):
                raise SettingError(f"network.weights: {index} names files in other folders; accepted: those beside it")
            return {name: one for part in parts for name, one in _of_file(path / part, key).items()}
    found = [path / name for name in SINGLE if (path / name).is_file()]
    found = found[:1] or sorted(one for one in path.iterdir() if one.suffix in SUFFIXES and one.is_file())
    if len(found) != 1:
        names = ", ".join(one.name for one in found) or "no file of weights"
        raise SettingError(f"network.weights: {path} has {names}; accepted: a folder with one, or the file's path")
    return _of_file(found[0], key)


def _of_file(path: Path, key: str | None) -> Stored:
    with path.open("rb") as opened:
        start = opened.read(HEADER_AT + 1)
    if start[HEADER_AT:] != b"{" or start.startswith(b"PK"):
        return _of_torch_file(path, key)
    file: Any = safe_open(path, framework="pt")
    if key is not None:
        raise _without_keys(path, key)
    return {
        name: StoredTensor(tuple(file.get_slice(name).get_shape()), partial(file.get_tensor, name))
        for name in file.keys()  # noqa: SIM118 - not a mapping
    }


def _of_torch_file(path: Path, key: str | None) -> Stored:
    """The set of tensors in what torch has saved: the file's own, or that under a key of it."""
    state = unpacked(path if zipfile.is_zipfile(path) else path.read_bytes(), path)
    sets = {name: one for name, one in state.items() if _is_set(one)} if isinstance(state, Mapping) else {}
    if _is_set(state):
        if key is not None:
            raise _without_keys(path, key)
        sets = {"": state}
    if key is None and len(sets) == 1:
        key = next(iter(sets))
    if key not in sets:
        known = ", ".join(map(repr, sets)) or "none"
        asked = "has several sets of tensors" if key is None and sets else f"has no set of tensors {key or ''}".strip()
        raise SettingError(
            f"network.weights: {path} {asked}; accepted: what `state_dict()` gives, or a mapping that has it, with "
            f"network.weights.key as one of: {known}"
        )
    return {name: StoredTensor(tuple(one.shape), partial(one.detach)) for name, one in sets[key].items()}


def _without_keys(path: Path, key: str) -> SettingError:
    return SettingError(f"network.weights.key is {key!r}, and {path} has one set of weights; accepted: null")


def _is_set(state: Any) -> bool:
    """Whether it is what `state_dict()` gives."""
    return isinstance(state, Mapping) and bool(state) and all(isinstance(one, torch.Tensor) for one in state.values())
