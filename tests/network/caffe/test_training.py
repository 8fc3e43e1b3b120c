"""Training of Caffe's networks: by a solver as Caffe updates, and on workers and servers as on one device."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from network.caffe._nets import SAMPLES, SHARED
from train._served import served
from train._training import trained
from train.test_served import over
from volary.network.caffe.solver.session import session_settings
from volary.session import Session
from volary.session.reading.read import read_from
from volary.session.spec import Strategy
from volary.train.model import build_model
from volary.train.state.seeds import seed_all

LENET = """
layer { name: "d" type: "Data" top: "data" top: "label" data_param { source: "x" batch_size: 12 backend: LMDB } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  param { lr_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
  convolution_param { num_output: 20 kernel_size: 5 weight_filler { type: "xavier" } } }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "conv2" type: "Convolution" bottom: "pool1" top: "conv2" param { lr_mult: 0.5 } param { lr_mult: 2 }
  convolution_param { num_output: 50 kernel_size: 5 weight_filler { type: "xavier" } } }
layer { name: "pool2" type: "Pooling" bottom: "conv2" top: "pool2" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "ip1" type: "InnerProduct" bottom: "pool2" top: "ip1"
  param { lr_mult: 1 } param { lr_mult: 2 decay_mult: 3 }
  inner_product_param { num_output: 500 weight_filler { type: "xavier" } } }
layer { name: "relu1" type: "ReLU" bottom: "ip1" top: "ip1" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" param { lr_mult: 1 } param { lr_mult: 0 }
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
"""
FACTORS = {  # lr_mult and decay_mult, by hand
    "conv1.weight": (1, 1), "conv1.bias": (2, 0), "conv2.weight": (0.5, 1), "conv2.bias": (2, 1),
    "ip1.weight": (1, 1), "ip1.bias": (2, 3), "ip2.weight": (1, 1), "ip2.bias": (0, 1),
}  # fmt: skip
SOLVER = """
net: "net.prototxt" base_lr: 0.01 lr_policy: "step" gamma: 0.1 stepsize: 30 max_iter: 50 momentum: 0.9
weight_decay: 0.01 iter_size: 2 clip_gradients: CLIP random_seed: 3
"""
SMALL = """
layer { name: "d" type: "Data" top: "data" top: "label" data_param { source: "x" batch_size: 5 backend: LMDB } }
layer { name: "c/1" type: "Convolution" bottom: "data" top: "c" param { lr_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
  convolution_param { num_output: 6 kernel_size: 5 stride: 3 weight_filler { type: "xavier" } } }
layer { name: "r" type: "ReLU" bottom: "c" top: "c" }
layer { name: "a" type: "Pooling" bottom: "c" top: "a" pooling_param { pool: AVE kernel_size: 3 stride: 2 } }
layer { name: "b" type: "Convolution" bottom: "c" top: "b"
  convolution_param { num_output: 6 kernel_size: 3 stride: 2 pad: 1
  weight_filler { type: "msra" } } }
layer { name: "n" type: "LRN" bottom: "b" top: "n" }
layer { name: "s" type: "Eltwise" bottom: "a" bottom: "n" top: "s" }
layer { name: "ip" type: "InnerProduct" bottom: "s" top: "ip" inner_product_param { num_output: 10
  weight_filler { type: "gaussian" std: 0.1 } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


def session(net, solver, *overrides):
    Path("net.prototxt").write_text(net)
    Path("solver.prototxt").write_text(solver)
    more = ["data.source={name: idx, folder: .}", "evaluate.every=never", *overrides]
    found = session_settings(Path("solver.prototxt"), 1, {"data.source"})
    return read_from(Session, found.settings, more)


def scores(values, images):
    """LeNet as a formula, of parameters by name."""
    x = functional.conv2d(images, values["conv1.weight"], values["conv1.bias"])
    x = functional.conv2d(functional.max_pool2d(x, 2), values["conv2.weight"], values["conv2.bias"])
    x = functional.linear(functional.max_pool2d(x, 2).flatten(1), values["ip1.weight"], values["ip1.bias"])
    return functional.linear(x.relu(), values["ip2.weight"], values["ip2.bias"])


def caffe(values, images, labels, clip):
    """Fifty iterations of Caffe's SGD solver (sgd_solver.cpp), in its order: clip, divide, decay, update."""
    history = {name: torch.zeros_like(one) for name, one in values.items()}
    norms = []
    for iteration in range(50):
        rate = 0.01 * 0.1 ** (iteration // 30)
        gradients = {name: torch.zeros_like(one) for name, one in values.items()}
        for part in range(2):  # iter_size: gradients of both batches are added up
            own = {name: one.clone().requires_grad_() for name, one in values.items()}
            batch = slice(part * 12, part * 12 + 12)
            functional.cross_entropy(scores(own, images[batch]), labels[batch]).backward()
            gradients = {name: gradients[name] + one.grad for name, one in own.items()}
        norm = float(torch.sqrt(sum((one**2).sum() for one in gradients.values())))
        norms.append(norm)
        for name, gradient in gradients.items():
            lr_mult, decay_mult = FACTORS[name]
            gradient = gradient * min(1.0, clip / norm) / 2 + 0.01 * decay_mult * values[name]
            history[name] = 0.9 * history[name] + rate * lr_mult * gradient
            values[name] = values[name] - history[name]
    return values, norms


def test_fifty_steps_of_lenet_follow_caffe_s_update_rule_written_down(digits):
    clip = 3.0
    one = session(LENET, SOLVER.replace("CLIP", str(clip)), "data.shuffle=false")
    assert (one.data.batch_size, one.train.accumulate) == (SAMPLES, 2)
    seed_all(one.train.seed)
    begun = {name: p.detach().clone() for name, p in build_model(one, torch.device("cpu")).module.named_parameters()}
    assert set(begun) == set(FACTORS)
    expected, norms = caffe(dict(begun), *digits, clip)
    assert min(norms) < clip < max(norms), "some steps are clipped, and others are not"
    found = trained(0, 1, one).parameters
    for name, values in expected.items():
        moved = (begun[name] - values).abs().max()
        away = (found[name] - values).abs().max()
        assert away <= 1e-4 * moved + 1e-6, f"{name}: {away} of {moved}"
    assert torch.equal(found["ip2.bias"], begun["ip2.bias"])


RULE = 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 12 momentum: 0.9 weight_decay: 0.01 iter_size: 2'


def on_workers(rank, world_size, one):
    return trained(rank, world_size, one, "replicated").parameters


def on_servers(rank, world_size, one):
    return served(rank, world_size, one)


def equal(found, alone):
    for name, values in alone.items():
        torch.testing.assert_close(
            found[name], values, rtol=1e-4, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.slow  # tests/train/test_layer_lists.py trains such networks on two workers
def test_two_workers_and_two_workers_over_two_servers_learn_what_one_does(digits, workers):
    one = session(SMALL, RULE)
    alone = trained(0, 1, one, "alone").parameters
    equal(workers(2, on_workers, replace(one, strategy=Strategy(workers=2)))[0], alone)
    equal(workers(4, on_servers, over(one, 2, 2))[0].parameters, alone)


IMPORTED = {
    "lenet/lenet_train_test.prototxt": [1, 28, 28],
    "cifar10_quick/cifar10_quick_train_test.prototxt": [3, 32, 32],
    "cifar10_quick/v1_cifar10_quick_train_test.prototxt": [3, 32, 32],
    "bvlc_alexnet/train_val.prototxt": [3, 227, 227],
    "bvlc_reference_caffenet/train_val.prototxt": [3, 227, 227],
    "squeezenet_v1.1/train_val.prototxt": [3, 227, 227],
}


@pytest.mark.slow  # networks of up to 61 million parameters
@pytest.mark.skipif(not (SHARED / "caffe").is_dir(), reason="there is no ../shared/caffe beside the checkout")
@pytest.mark.parametrize("name", IMPORTED)
def test_a_network_of_somebody_else_s_learns_on_two_workers_what_it_learns_on_one(workers, name):
    """Without dropout, whose masks each worker draws for its own samples."""
    text = (SHARED / "caffe" / name).read_text()
    Path("net.prototxt").write_text(re.sub(r"dropout_ratio: *[0-9.]+", "dropout_ratio: 0", text))
    one = Session(
        network={"name": "caffe", "caffe": "net.prototxt"},
        data={
            "source": {"name": "synthetic", "shape": IMPORTED[name], "classes": 10, "samples": 16},
            "batch_size": 4,
        },
        optimizer={"name": "sgd", "lr": 1e-4, "momentum": 0.9},
        train={"steps": 3, "seed": 1},
        evaluate={"every": "never"},
    )
    seed_all(one.train.seed)
    begun = {name: p.detach().clone() for name, p in build_model(one, torch.device("cpu")).module.named_parameters()}
    alone = trained(0, 1, one, "alone").parameters
    found = workers(2, on_workers, replace(one, strategy=Strategy(workers=2)))[0]
    assert set(found) == set(alone) == set(begun)
    moved = {parameter: (alone[parameter] - values).abs().max() for parameter, values in begun.items()}
    assert any(moved.values())
    for parameter, far in moved.items():
        away = (found[parameter] - alone[parameter]).abs().max()
        assert away <= 1e-3 * far + 1e-7, f"{parameter}: {away} of {far}"
