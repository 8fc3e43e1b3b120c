"""A network begins from weights that somebody saved, in any of the usual files, with any strategy; and only once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor, nn

from train._training import session
from train.test_served import over
from volary.driver.ending import NoWatcher
from volary.driver.resume import resume
from volary.driver.start import start
from volary.errors import BadInput, SettingError
from volary.network.starting_weights import StartingWeights
from volary.run.checkpoints import Checkpoints
from volary.train.afterwards import load_model
from volary.train.beginning.first_checkpoint import untrained
from volary.train.beginning.from_weights import read_weights
from volary.train.model import build_model


def network(classes: int = 4) -> nn.Module:
    body = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3))
    return nn.ModuleDict({"body": body, "fc": nn.Linear(3, classes)})


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight


def values(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def assert_read(wanted: dict[str, Tensor], path: Path, **rules: Any) -> None:
    module = network()
    read_weights(module, StartingWeights(path=path, **rules), classes=4)
    torch.testing.assert_close(values(module), wanted, rtol=0, atol=0)


def refused(module: nn.Module, path: Path, **rules: Any) -> list[str]:
    with pytest.raises(SettingError) as told:
        read_weights(module, StartingWeights(path=path, **rules), classes=4)
    return str(told.value).splitlines()


def test_the_usual_files_and_folders_are_read(tmp_path):
    state = values(network())
    save_file(state, tmp_path / "it.safetensors")
    torch.save(state, tmp_path / "it.pt")
    torch.save(state, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    torch.save({"epoch": 3, "state_dict": state, "optimizer": {"state": {}, "param_groups": []}}, tmp_path / "it.ckpt")
    torch.save({"model": state, "ema": state}, tmp_path / "two.pt")
    hub = tmp_path / "models--some--model"
    snapshot = hub / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (hub / "refs").mkdir()
    (hub / "refs" / "main").write_text("abc")
    names = list(state)
    parts = {"one.safetensors": names[:2], "two.safetensors": names[2:]}
    for part, own in parts.items():
        save_file({name: state[name] for name in own}, snapshot / part)
    index = {"weight_map": {name: part for part, own in parts.items() for name in own}}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    kept = network()
    kept.load_state_dict(state)
    untrained(kept).write(checkpoints)
    for name in ("it.safetensors", "it.pt", "old.pth", "it.ckpt", "models--some--model", "checkpoints/step-00000000"):
        assert_read(state, tmp_path / name)
    assert_read(state, tmp_path / "two.pt", key="ema")
    assert "'model', 'ema'" in refused(network(), tmp_path / "two.pt")[0]
    for name in ("it.safetensors", "it.pt"):
        assert "has one set of weights; accepted: null" in refused(network(), tmp_path / name, key="model")[0]


def test_a_file_that_would_run_something_is_refused(tmp_path):
    torch.save(network(), tmp_path / "whole.pt")
    assert "holds more than tensors" in refused(network(), tmp_path / "whole.pt")[0]


@given(st.lists(st.sampled_from(["module.", "_orig_mod.", "model."]), max_size=3), st.sampled_from([None, "backbone."]))
@settings(max_examples=15, deadline=None)
def test_prefixes_are_taken_off_and_names_mapped(tmp_path_factory, prefixes, other):
    file, state = tmp_path_factory.mktemp("it") / "it.safetensors", values(network())
    named = {name.replace("body.", other) if other else name: one for name, one in state.items()}
    save_file({"".join(prefixes) + name: one for name, one in named.items()}, file)
    assert_read(state, file, rename={f"{other}*": "body.*"} if other else {})


def test_every_mismatch_is_told_at_once_with_the_nearest_name(tmp_path):
    state = values(network(classes=10))
    state["body.0.kernel"] = state.pop("body.0.weight")
    state["extra"] = torch.zeros(2)
    save_file(state, tmp_path / "it.safetensors")
    said = "\n".join(refused(network(), tmp_path / "it.safetensors", fresh=("neck",)))
    for sentence in (
        "body.0.weight (3 x 1 x 3 x 3) is not in the file; nearest: body.0.kernel",
        "fc.weight is 10 x 3 in the file and 4 x 3 here",
        "fc.bias is 10 in the file and 4 here",
        "extra (2) is in the file, and the network has none such",
        "fresh has 'neck', which fits no name of the network",
    ):
        assert sentence in said
    module = network()
    before = values(module)
    rules = {"rename": {"body.0.kernel": "body.0.weight"}, "leave_out": ("extra",), "replace_last": True}
    read_weights(module, StartingWeights(path=tmp_path / "it.safetensors", **rules), classes=4)
    after = values(module)
    assert torch.equal(after["body.0.weight"], state["body.0.kernel"])
    assert all(torch.equal(after[name], before[name]) for name in ("fc.weight", "fc.bias"))


def test_layers_begin_anew_by_pattern(tmp_path):
    state, module = values(network()), network()
    before = values(module)
    save_file(state, tmp_path / "it.safetensors")
    read_weights(module, StartingWeights(path=tmp_path / "it.safetensors", fresh=("fc", "*.running_mean")))
    kept = {"fc.weight", "fc.bias", "body.1.running_mean"}
    assert all(torch.equal(one, (before if name in kept else state)[name]) for name, one in values(module).items())


def test_shared_tensors_are_found_under_either_name_and_must_agree(tmp_path):
    weight = torch.randn(5, 3)
    for name in ("embed.weight", "head.weight"):
        save_file({name: weight}, tmp_path / "it.safetensors")
        module = Tied()
        read_weights(module, StartingWeights(path=tmp_path / "it.safetensors"))
        assert torch.equal(module.head.weight, weight)
    save_file({"embed.weight": weight, "head.weight": weight + 1}, tmp_path / "it.safetensors")
    assert "whose values differ" in refused(Tied(), tmp_path / "it.safetensors")[1]


@pytest.mark.parametrize("scale", [None, (), (6,), (6, 1), (3, 2)])
def test_files_of_16_and_8_bits_are_read(tmp_path, scale):
    module, weight = nn.Linear(4, 6), torch.randn(6, 4)
    narrow = weight.to(torch.float8_e4m3fn)
    stored, wanted = {"weight": narrow, "bias": torch.randn(6).bfloat16()}, narrow.float()
    if scale is not None:
        stored["weight_scale_inv"] = factor = torch.rand(scale)
        each = factor.reshape(6, 1) if scale == (6,) else factor
        if scale == (3, 2):
            each = factor.repeat_interleave(2, 0).repeat_interleave(2, 1)
        wanted = wanted * each
    save_file(stored, tmp_path / "it.safetensors")
    read_weights(module, StartingWeights(path=tmp_path / "it.safetensors"))
    torch.testing.assert_close(module.weight.detach(), wanted, rtol=0, atol=0)
    torch.testing.assert_close(module.bias.detach(), stored["bias"].float(), rtol=0, atol=0)


def test_whole_numbers_are_no_weights(tmp_path):
    save_file({"weight": torch.ones(6, 4, dtype=torch.int8), "bias": torch.zeros(6)}, tmp_path / "it.safetensors")
    assert "weight is int8 in the file and float32 here" in refused(nn.Linear(4, 6), tmp_path / "it.safetensors")[1]


STILL = {"name": "sgd", "lr": 1e-30}  # nothing changes


@pytest.mark.slow  # over all-reduce above
def test_a_run_over_servers_begins_from_a_file_that_nobody_reads_again(tmp_path):
    one = session("Exact", optimizer=STILL, train={"steps": 2})
    state = {name: tensor + 0.25 for name, tensor in build_model(one, torch.device("cpu")).module.state_dict().items()}
    file = tmp_path / "it.safetensors"
    save_file({f"module.{name}": tensor for name, tensor in state.items()}, file)
    begun = over(session("Exact", of={"weights": str(file)}, optimizer=STILL, train={"steps": 2}), 2, 1)
    directory = start(begun, NoWatcher()).directory
    file.unlink()
    resume(directory, NoWatcher(), ["train.steps=3"])
    assert Checkpoints(directory.checkpoints).steps() == [0, 2, 3]
    torch.testing.assert_close(dict(load_model(directory, 3).module.state_dict()), state, rtol=0, atol=0)


@pytest.mark.slow  # a process that imports torch, to be told what an earlier test is told
def test_weights_that_do_not_fit_leave_no_run(tmp_path):
    save_file({"other": torch.zeros(2)}, tmp_path / "it.safetensors")
    for file, sentence in (
        ("it.safetensors", r"(?s)other \(2\) is in the file, and"),
        ("no.pt", "no such file or folder"),
    ):
        with pytest.raises(BadInput, match=sentence):
            start(session("Exact", of={"weights": str(tmp_path / file)}), NoWatcher())
    assert not list(Path("runs").iterdir())
