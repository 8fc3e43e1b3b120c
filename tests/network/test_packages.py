"""Networks of timm and torchvision by their names, for who has these packages."""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from volary.errors import SettingError
from volary.network import build
from volary.network.zoo.timm import TimmNetwork
from volary.network.zoo.torchvision import TorchvisionNetwork
from volary.session import Session

LIKE_TIMM = """
from torch import nn

def list_models():
    return ["resnet26", "resnet50"]

def create_model(name, pretrained, num_classes, in_chans, drop_rate=0.0):
    assert not pretrained
    return nn.Sequential(nn.Flatten(), nn.Dropout(drop_rate), nn.Linear(in_chans * 64, num_classes))
"""


def importable(package: str) -> None:
    """Skip where it is not installed.

    Wheels for CUDA cannot load their operators beside a torch for CPUs, and only need their names to be imported.
    """
    if missing := [one for one in {"torchvision", package} if find_spec(one) is None]:
        pytest.skip(f"there is no {missing[0]} here")
    for operator in ("nms", "qnms") if not hasattr(torch.ops.torchvision, "nms") else ():
        torch.library.define(f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    importlib.import_module(package)


@pytest.mark.parametrize(("package", "model"), [("timm", "resnet26"), ("torchvision", "resnet18")])
def test_a_name_behind_a_colon_is_the_package_s(package, model, tmp_path):
    (tmp_path / "session.yaml").write_text(f'network: "{package}:{model}"\ndata: {{source: digits}}\n')
    session = Session.read(tmp_path / "session.yaml", ["network.classes=4"])
    assert (session.network.model, session.network.classes) == (model, 4)
    (tmp_path / "again.yaml").write_text(session.to_yaml())
    assert Session.read(tmp_path / "again.yaml") == session


def test_a_package_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr("volary.network.blocks.package.find_spec", lambda _: None)
    for kind, package in ((TimmNetwork, "timm"), (TorchvisionNetwork, "torchvision")):
        session = Session(network=kind(model="resnet18"), data={"source": "digits"})
        with pytest.raises(SettingError, match=rf"pip install 'volary\[{package}\]' first"):
            session.check()


def test_data_and_arguments_reach_the_package_and_unknown_names_are_refused(tmp_path, monkeypatch):
    """By a module of timm's form: the package itself is tried below, where it is."""
    Path(tmp_path / "timm.py").write_text(LIKE_TIMM)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    made = build(TimmNetwork(model="resnet26.bt_in1k", arguments={"drop_rate": 0.25}), (2, 8, 8), 4)
    assert (made[1].p, made[2].weight.shape) == (0.25, (4, 128))
    with pytest.raises(SettingError, match="model is 'resnet27', which timm does not have; nearest: resnet26"):
        build(TimmNetwork(model="resnet27"), (2, 8, 8), 4)
    sys.modules.pop("timm")


def test_torchvision_s_network_is_that_of_the_zoo_with_other_names():
    importable("torchvision")
    module = build(TorchvisionNetwork(model="resnet18"), (3, 64, 64), 10)
    assert sum(one.numel() for one in module.parameters()) == 11_181_642
    assert module(torch.zeros(1, 3, 64, 64)).shape == (1, 10)
    with pytest.raises(SettingError, match="model is 'resnet19', which torchvision does not have; nearest: resnet1"):
        build(TorchvisionNetwork(model="resnet19"), (3, 64, 64), 10)


def test_timm_s_network_is_made_for_the_data():
    importable("timm")
    module = build(TimmNetwork(model="resnet26", arguments={"drop_rate": 0.1}), (1, 32, 32), 7)
    assert module(torch.zeros(2, 1, 32, 32)).shape == (2, 7)
