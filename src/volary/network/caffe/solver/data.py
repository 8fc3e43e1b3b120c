"""The data layers of a network, as settings of a source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from volary.errors import SettingError
from volary.network.caffe.findings import Findings
from volary.network.caffe.message import CaffeMessage
from volary.network.caffe.solver.files import found_from
from volary.network.caffe.source import CaffePhase, NetSource
from volary.network.caffe.types.registry import DATA

Settings = dict[str, Any]
_INSTEAD = "accepted: LMDB, or data.source=... on the command line, such as data.source='{name: idx, folder: mnist}'"


def data_layer(net: NetSource, phase: CaffePhase) -> CaffeMessage | None:
    """The data layer of a phase; None if it has none."""
    return next((layer for layer in net.layers[phase] if layer.one("type") in DATA), None)


def samples_a_step(layer: CaffeMessage) -> int | None:
    """How many samples one device takes at a time; None if the layer does not say."""
    for name in ("data_param", "image_data_param", "hdf5_data_param", "memory_data_param", "window_data_param"):
        if layer.part(name).one("batch_size") and name in layer:
            return int(layer.part(name).one("batch_size"))
    return None


def source(net: NetSource, folder: Path, findings: Findings) -> Settings:
    """The source that reads what the data layers of both phases read; images keep the order of the file's planes.

    folder: of the solver, where paths are looked for, too. Raises SettingError for layers that read something else.
    """
    layers = {phase: data_layer(net, phase) for phase in ("TRAIN", "TEST")}
    train = layers["TRAIN"]
    if train is None:
        raise SettingError(f"{net.file}: has no data layer for training; {_INSTEAD}")
    found: Settings = {"name": "lmdb", "bgr": False}
    for phase, layer in layers.items():
        layer = layer or train
        name = layer.one("name")
        if layer.one("type") != "Data" or layer.part("data_param").one("backend") != "LMDB":
            what = "LEVELDB" if layer.one("type") == "Data" else layer.one("type")
            raise SettingError(f"{net.file}:{layer.line}: layer {name!r}: reads {what}; {_INSTEAD}")
        path = layer.part("data_param").one("source")
        found["train" if phase == "TRAIN" else "test"] = str(found_from(path, folder) or path)
    if layers["TEST"] is None:
        findings.ignore("the network has no data layer for TEST: it is evaluated on the training data")
    return found | _transformed(train, layers["TEST"] or train, folder, findings)


def _transformed(train: CaffeMessage, test: CaffeMessage, folder: Path, findings: Findings) -> Settings:
    given = train.part("transform_param")
    scale, name = given.one("scale"), train.one("name")
    mean = _mean_file(given, folder, findings, name)
    for field in ("scale", "mean_value", "mean_file"):
        other = test.part("transform_param")
        if given.all(field) != other.all(field) and "transform_param" in test:
            findings.ignore(f"{field} differs in TEST; that of TRAIN holds", other.line_of(field), test.one("name"))
    found: Settings = {"std": [1 / (255 * scale)], "mean": [one / 255 for one in given.all("mean_value")] or [0.0]}
    first = [{"name": "mean_image", "file": str(mean)}] if mean else []
    channels = 1 if given.one("force_gray") else None
    crop, mirror = given.one("crop_size"), given.one("mirror")
    transforms = [{"name": "random_crop", "size": crop}] if crop else []
    found["transforms"] = [*first, *transforms, *([{"name": "flip"}] if mirror else [])]
    size = test.part("transform_param").one("crop_size") or crop
    found["test_transforms"] = [*first, *([{"name": "centre_crop", "size": size}] if size else [])]
    return found | ({"channels": channels} if channels else {})


def _mean_file(given: CaffeMessage, folder: Path, findings: Findings, name: str) -> Path | None:
    if "mean_file" not in given:
        return None
    if "mean_value" in given:
        raise SettingError(f"{findings.file}: layer {name!r}: mean_file and mean_value are both given; accepted: one")
    path = given.one("mean_file")
    found = found_from(path, folder)
    if found is None:
        raise SettingError(f"{findings.file}: layer {name!r}: mean_file {path}: no such file")
    return found
