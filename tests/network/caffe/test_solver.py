"""Solvers as sessions: rules, policies, periods, data; and what of them is refused or ignored."""

from pathlib import Path

import numpy as np
import pytest

from network.caffe._nets import CHECKOUT
from volary.errors import SettingError
from volary.network.caffe.reading.binary import written
from volary.network.caffe.solver.session import session_settings
from volary.network.caffe.weights.blob import blob_from
from volary.session import Session
from volary.session.reading.read import read_from

NET = """
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN } transform_param { TRANSFORM }
  data_param { source: "train_lmdb" batch_size: 16 backend: LMDB } }
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TEST } transform_param { TRANSFORM }
  data_param { source: "test_lmdb" batch_size: 50 backend: LMDB } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" param { lr_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
  inner_product_param { num_output: 10 } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVER = 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 100'
DIGITS = ["data.source=digits"]


def files(folder, solver=SOLVER, net=NET, transform="scale: 0.00390625"):
    (folder / "net.prototxt").write_text(net.replace("TRANSFORM", transform))
    file = folder / "solver.prototxt"
    file.write_text(solver)
    return file


def session(folder, solver=SOLVER, *overrides, workers=1, **more):
    given = {one.partition("=")[0] for one in overrides}
    found = session_settings(files(folder, solver, **more), workers, given)
    return read_from(Session, found.settings, list(overrides)), found.ignored


@pytest.mark.parametrize(
    ("policy", "rate"),
    [
        ('lr_policy: "fixed"', lambda t: 1),
        ('lr_policy: "step" gamma: 0.5 stepsize: 7', lambda t: 0.5 ** (t // 7)),
        ('lr_policy: "exp" gamma: 0.9', lambda t: 0.9**t),
        ('lr_policy: "inv" gamma: 0.1 power: 0.75', lambda t: (1 + 0.1 * t) ** -0.75),
        ('lr_policy: "multistep" gamma: 0.5 stepvalue: 5 stepvalue: 9', lambda t: 0.5 ** ((t >= 5) + (t >= 9))),
        ('lr_policy: "poly" power: 2', lambda t: (1 - t / 100) ** 2),
        ('lr_policy: "sigmoid" gamma: -0.3 stepsize: 50', lambda t: 1 / (1 + np.exp(0.3 * (t - 50)))),
    ],
)  # fmt: skip
def test_every_policy_is_caffe_s_formula(tmp_path, policy, rate):
    found, _ = session(tmp_path, f'net: "net.prototxt" base_lr: 0.1 {policy} max_iter: 100', *DIGITS)
    assert found.optimizer.lr == pytest.approx(0.1)
    assert [found.schedule.factor(t, 100) for t in range(100)] == pytest.approx([rate(t) for t in range(100)], rel=1e-6)


@pytest.mark.parametrize(
    ("rule", "name", "settings"),
    [
        ("momentum: 0.9 weight_decay: 0.5", "CaffeSgd", {"momentum": 0.9, "weight_decay": 0.5, "decay": "l2"}),
        ('regularization_type: "L1" weight_decay: 0.5', "CaffeSgd", {"decay": "l1", "weight_decay": 0.5}),
        ('type: "Nesterov" momentum: 0.5', "CaffeSgd", {"nesterov": True, "momentum": 0.5}),
        ("solver_type: NESTEROV momentum: 0.5", "CaffeSgd", {"nesterov": True}),
        ('type: "AdaGrad" delta: 0.5', "Adagrad", {"eps": 0.5}),
        ('type: "RMSProp" rms_decay: 0.5 delta: 0.25', "RmsProp", {"alpha": 0.5, "eps": 0.25}),
        ('type: "AdaDelta" momentum: 0.75 delta: 0.25', "Adadelta", {"rho": 0.75, "eps": 0.25}),
        ('type: "Adam" momentum: 0.75 momentum2: 0.5', "Adam", {"betas": (0.75, 0.5), "eps": 1e-8}),
    ],
)
def test_every_type_is_an_optimiser_with_caffe_s_settings(tmp_path, rule, name, settings):
    found, _ = session(tmp_path, f"{SOLVER} {rule}", *DIGITS)
    assert type(found.optimizer).__name__.lower() == name.lower()
    for setting, value in settings.items():
        assert getattr(found.optimizer, setting) == pytest.approx(value) if setting != "decay" else value


def test_each_worker_takes_the_batch_of_a_device_and_iter_size_of_them(tmp_path):
    text = f"{SOLVER} iter_size: 3 clip_gradients: 6 test_interval: 20 snapshot: 30 random_seed: 7 solver_mode: CPU"
    found, _ = session(tmp_path, text, "strategy.workers=4", *DIGITS, workers=4)
    assert found.data.batch_size == 16 * 4 * 3
    assert (found.train.accumulate, found.train.steps, found.train.seed) == (3, 100, 7)
    assert found.train.clip_norm == pytest.approx(2.0), "Caffe clips the sum of three gradients"
    assert (str(found.evaluate.every), str(found.checkpoint.every)) == ("20 steps", "30 steps")
    assert found.train.device == "cpu"
    assert found.network.factors() == {"ip.bias": (2.0, 0.0)}


@pytest.mark.parametrize("normalization", ["", "normalization: VALID", "normalize: true"])
def test_a_label_that_the_loss_ignores_is_the_target_that_counts_for_nothing(tmp_path, normalization):
    net = NET.replace('top: "loss"', f'top: "loss" loss_param {{ ignore_label: 255 {normalization} }}')
    found, _ = session(tmp_path, SOLVER, *DIGITS, net=net)
    assert found.loss.ignore_index == 255
    assert session(tmp_path, SOLVER, *DIGITS)[0].loss.ignore_index == -100


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("normalization: NONE", "has normalization NONE; accepted: VALID"),
        ("ignore_label: 1 normalization: FULL", "has normalization FULL; accepted: VALID, or FULL and BATCH_SIZE wit"),
        ("ignore_label: 1 normalize: false", "has normalization BATCH_SIZE; accepted: VALID, or FULL and BATCH_SIZE"),
    ],
)
def test_a_loss_that_is_divided_otherwise_is_refused(tmp_path, given, sentence):
    net = NET.replace('top: "loss"', f'top: "loss" loss_param {{ {given} }}')
    with pytest.raises(SettingError, match=f"layer 'loss': {sentence}"):
        session(tmp_path, SOLVER, *DIGITS, net=net)


def test_data_layers_are_the_source_and_their_transformations_its_settings(tmp_path):
    for name in ("train_lmdb", "test_lmdb"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.mdb").touch()
    mean = np.stack([np.full((4, 4), one, dtype=np.float32) for one in (51, 102, 204)])
    (tmp_path / "mean.binaryproto").write_bytes(written(blob_from(mean, legacy=True)))
    transform = 'scale: 0.5 mirror: true crop_size: 8 mean_file: "mean.binaryproto"'
    found, ignored = session(tmp_path, SOLVER, transform=transform)
    source = found.data.source
    assert (Path(source.train).name, Path(source.test).name, source.bgr) == ("train_lmdb", "test_lmdb", False)
    assert source.mean == (0.0,)
    assert source.std == pytest.approx((1 / (255 * 0.5),))
    assert [type(one).__name__ for one in source.transforms] == ["MeanImage", "RandomCrop", "Flip"]
    assert [type(one).__name__ for one in source.test_transforms] == ["MeanImage", "CentreCrop"]
    assert Path(source.transforms[0].file).name == "mean.binaryproto"
    assert not ignored


def test_fields_that_change_nothing_are_listed_with_line_and_reason(tmp_path):
    _, ignored = session(tmp_path, f"{SOLVER}\ndisplay: 10\ntest_iter: 5", *DIGITS)
    assert [one.partition("solver.prototxt:")[2] for one in ignored] == [
        "2: display is ignored: the console and the recorded metrics have every step",
        "3: test_iter is ignored: all validation data is measured, each sample once",
    ]


@pytest.mark.parametrize(
    ("solver", "net", "sentences"),
    [
        ('lr_policy: "fixed" max_iter: 1', NET, ["base_lr is 0; accepted: above 0", "has no network; accepted: net"]),
        (f'{SOLVER}\ntype: "LBFGS"', NET, ["solver.prototxt:2: type is 'LBFGS'; accepted: SGD, Nesterov"]),
        (SOLVER.replace("fixed", "wave"), NET, ["lr_policy is 'wave'; accepted: fixed, step"]),
        (SOLVER.replace("fixed", "step"), NET, ["stepsize is missing; lr_policy 'step' needs it"]),
        (f'{SOLVER} type: "RMSProp" momentum: 0.9', NET, ["momentum is 0.9 with RMSProp; accepted: 0, as in Caffe"]),
        (SOLVER.replace("net.proto", "none.proto"), NET, ["net: none.prototxt: no such file; looked for from"]),
        (SOLVER, NET.replace("LMDB", "LEVELDB"), ["net.prototxt:2: layer 'data': reads LEVELDB; accepted: LMDB, or"]),
        (SOLVER, NET.replace("SoftmaxWithLoss", "EuclideanLoss"), ["layer 'loss': type 'EuclideanLoss'; accepted"]),
        (SOLVER, NET.replace('"InnerProduct"', '"Inner"'), ["net.prototxt:6: layer 'ip': type: unknown name 'Inner'"]),
        (f"{SOLVER} iter_size: 0", NET, ["iter_size is 0; accepted: a whole number from 1"]),
        (f"{SOLVER} type: SGD", NET, ["solver.prototxt:1:73: type is 'SGD'; accepted: a text in quotes"]),
    ],
)
def test_what_cannot_be_had_is_said_with_file_and_line_all_at_once(tmp_path, solver, net, sentences):
    with pytest.raises(SettingError) as error:
        session_settings(files(tmp_path, solver, net), 1)
    lines = str(error.value).splitlines()
    assert len(lines) == len(sentences), lines
    for line, sentence in zip(lines, sentences, strict=True):
        assert sentence in line
        assert "prototxt" in line.partition(" ")[0]


def test_paths_are_looked_for_from_the_working_directory_and_from_the_solver_s_folders(tmp_path, monkeypatch):
    (tmp_path / "examples" / "mnist").mkdir(parents=True)
    file = files(tmp_path / "examples" / "mnist", SOLVER.replace("net.prototxt", "examples/mnist/net.prototxt"))
    for folder in (tmp_path, CHECKOUT):
        monkeypatch.chdir(folder)
        found = session_settings(file, 1, {"data.source"}).settings
        assert found["network"]["caffe"] == str(tmp_path / "examples" / "mnist" / "net.prototxt")
