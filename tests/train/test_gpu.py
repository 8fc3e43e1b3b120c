"""On a GPU each feature trains, with one worker and over servers, and comes to what it comes to on a CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import volary
from train import _own_loops
from train._user_networks import Dropping
from train.test_feature_matrix import FEATURES, FILE, REFUSED, Feature, session_of
from volary.api import train
from volary.cli.command.main import run
from volary.codec import ROOM as CODECS
from volary.network.metrics import ROOM as METRICS

DEVICE = "cuda"
LOOPS = Path(_own_loops.__file__)
SERVERS = {"exchange": {"name": "server", "servers": 1}}
IMAGES = {"name": "images", "folder": "pictures", "cache_mb": 0}
POINTS = {"name": "synthetic", "shape": [12], "classes": 3, "samples": 120, "kind": "blobs"}
LAYERS = {"layers": [{"linear": {"outputs": 16}}, "relu", {"linear": {"outputs": "classes"}}]}

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE == "cuda" and not torch.cuda.is_available(), reason="there is no CUDA device"),
]


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(Dropping().state_dict(), FILE)


def featured(feature: Feature, strategy: dict[str, Any]) -> volary.Session:
    one = session_of(feature, {"workers": 1, **strategy})
    return replace(one, train=replace(one.train, device=DEVICE))


def plain(device: str = DEVICE, **settings: Any) -> volary.Session:
    """A session without anything that is drawn otherwise on other devices."""
    trained_how = {"steps": 20, **settings.pop("train", {}), "device": device}
    strategy = {"workers": 1, **settings.pop("strategy", {})}
    data = {"source": settings.pop("source", POINTS), "batch_size": 20}
    return volary.Session(
        **{"network": LAYERS, "evaluate": {"every": "10 steps"}, "optimizer": {"name": "sgd", "lr": 0.1}, **settings},
        data=data,
        train=trained_how,
        strategy=strategy,
    )


def trained(one: volary.Session) -> dict[str, torch.Tensor]:
    result = train(one, show=False)
    assert result.state == "finished"
    found = dict(result.module.named_parameters())
    assert all(values.isfinite().all() for values in found.values())
    return found


def as_on_a_cpu(tolerance: float = 1e-4, **settings: Any) -> None:
    expected = trained(plain("cpu", **settings))
    for name, values in trained(plain(**settings)).items():
        torch.testing.assert_close(values.cpu(), expected[name], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", FEATURES)
def test_each_feature_trains(name):
    trained(featured(FEATURES[name], {}))


def serves(name: str) -> bool:
    """Whether servers take it, and it does not thaw a layer."""
    return name not in REFUSED["servers, bsp"] and "freeze" not in FEATURES[name].settings.get("train", {})


@pytest.mark.parametrize("name", [name for name in FEATURES if serves(name)])
def test_each_feature_trains_over_servers(name):
    trained(featured(FEATURES[name], SERVERS))


@pytest.mark.parametrize("codec", CODECS.names())
def test_each_codec_sends_to_servers_what_it_sends_from_a_cpu(codec):
    as_on_a_cpu(1e-3, strategy={**SERVERS, "codec": codec, "consistency": "bsp"})


@pytest.mark.parametrize("consistency", ["bsp", "local", "backup"])
def test_each_model_over_servers_comes_to_what_it_comes_to_on_a_cpu(consistency):
    as_on_a_cpu(strategy={**SERVERS, "consistency": consistency})


@pytest.mark.parametrize("consistency", ["ssp", "async"])
def test_models_whose_reads_may_be_old_train_over_servers(consistency):
    trained(plain(strategy={**SERVERS, "consistency": consistency}))


@pytest.mark.parametrize("precision, strategy", [("bf16", {}), ("fp16", {}), ("bf16", SERVERS)])
def test_16_bits_train(precision, strategy):
    trained(plain(train={"precision": precision}, strategy=strategy))


@pytest.mark.parametrize("strategy", [{}, SERVERS], ids=["alone", "servers"])
def test_images_of_files_train_and_are_evaluated(tmp_path, strategy):
    for number in range(48):
        path = tmp_path / "pictures" / ("train", "test")[number % 4 == 3] / "abc"[number % 3] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8, 3), 80 * (number % 3) + number, np.uint8)).save(path)
    as_on_a_cpu(source=IMAGES, strategy=strategy)


def test_text_trains_and_is_written(tmp_path):
    (tmp_path / "text.txt").write_text("the cat sat on the mat, and so on. " * 60)
    settings = {
        "network": {"name": "gpt", "width": 16, "heads": 2, "layers": 1},
        "source": {"name": "text", "path": "text.txt", "length": 16},
        "evaluate": {"every": "10 steps", "text": {"length": 8, "prompt": "the "}},
    }
    trained(plain(**settings))


def test_each_metric_is_measured_as_on_a_cpu():
    names = [name for name in METRICS.names() if name not in ("absolute_error", "r2")]
    names = [{"name": name, "k": 2} if name == "topk" else name for name in names]
    found = [
        plain(device, loss={"name": "cross_entropy", "metrics": names}).train(show=False).metrics
        for device in ("cpu", DEVICE)
    ]
    assert found[0].keys() == found[1].keys()
    for name, pairs in found[0].items():
        assert found[1][name][-1][1] == pytest.approx(pairs[-1][1], rel=1e-3, abs=1e-3), name


@pytest.mark.parametrize("loss", ["CrossEntropyLoss", "functional.cross_entropy"])
def test_a_loss_of_torch_has_its_weights_where_the_network_is(loss):
    module, _, function = f"torch.nn.{loss}".rpartition(".")
    as_on_a_cpu(loss={"name": f"{module}:{function}", "weight": [1.0, 2.0, 0.5]})


def test_averages_freezing_and_compiled_code():
    trained(plain(train={"average": {"name": "ema", "decay": 0.9}, "freeze": [{"match": "linear1"}]}))
    trained(plain(train={"compile": True}))


@pytest.mark.parametrize("strategy", [{}, SERVERS], ids=["alone", "servers"])
def test_a_resumed_run_comes_to_the_same_bit_for_bit(strategy):
    whole = trained(plain(strategy=strategy))
    plain(strategy=strategy, train={"steps": 10}, run={"name": "half"}).train(show=False)
    assert run(["resume", "half", "train.steps=20"]) == 0
    for name, values in volary.Result.of("half").module.named_parameters():
        assert torch.equal(values.cpu(), whole[name].cpu())


def test_a_run_predicts_as_on_a_cpu():
    result = plain().train(show=False)
    rows = torch.randn(30, 12, generator=torch.Generator().manual_seed(0))
    on_gpu, on_cpu = (result.predict(rows, device=device) for device in (DEVICE, "cpu"))
    np.testing.assert_allclose(on_gpu.values, on_cpu.values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("loop", ["plain", "accumulating", "clipping", "zeroing"])
@pytest.mark.parametrize("strategy", [{}, SERVERS], ids=["alone", "servers"])
def test_a_loop_of_one_s_own_comes_to_what_it_comes_to_on_a_cpu(loop, strategy):
    expected, found = (
        volary.launch(f"{LOOPS}:{loop}", 1, strategy, device=device, show=False).values[0]["state"]
        for device in ("cpu", DEVICE)
    )
    for name, values in found.items():
        torch.testing.assert_close(values.cpu(), expected[name], rtol=1e-6, atol=1e-6)
