"""Runs that continue from a snapshot of Caffe's solver, by its rules written down, as if it had not stopped."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from network.caffe._nets import SAMPLES, SHARED, caffemodel, solverstate
from train._served import served
from train._training import trained
from train.test_served import over
from volary.errors import SettingError
from volary.network.caffe.solver.session import session_settings
from volary.network.caffe.solver.snapshot import read_snapshot
from volary.run.checkpoints import Checkpoints
from volary.run.directory import RunDirectory
from volary.session import Session
from volary.session.reading.read import read_from
from volary.session.spec import Strategy
from volary.train.beginning.from_caffe import first_checkpoint

NET = """
layer { name: "d" type: "Data" top: "data" top: "label" data_param { source: "x" batch_size: 24 backend: LMDB } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" param { lr_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
  inner_product_param { num_output: 10 transpose: true weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
FACTORS = ((1, 1), (2, 0))  # lr_mult and decay_mult of weight and bias
STOPPED, END = 7, 12
SOLVER = (
    f'net: "net.prototxt" base_lr: 0.05 lr_policy: "step" gamma: 0.1 stepsize: 6 max_iter: {END} weight_decay: 0.01'
)
TYPES = {
    "SGD": "momentum: 0.9",
    "Nesterov": "momentum: 0.9",
    "AdaGrad": "delta: 1e-4",
    "RMSProp": "rms_decay: 0.9 delta: 1e-4",
    "AdaDelta": "momentum: 0.9 delta: 1e-4",
    "Adam": "momentum: 0.8 momentum2: 0.95 delta: 1e-8",
}


def update(kind, gradient, kept, rate, iteration):
    """The decrease of a parameter, and the history kept for the next step (BVLC/caffe, src/caffe/solvers)."""
    first, second = kept
    if kind == "SGD":
        first = 0.9 * first + rate * gradient
        return first, (first, second)
    if kind == "Nesterov":
        history = 0.9 * first + rate * gradient
        return 1.9 * history - 0.9 * first, (history, second)
    if kind == "AdaGrad":
        first = first + gradient**2
        return rate * gradient / (np.sqrt(first) + 1e-4), (first, second)
    if kind == "RMSProp":
        first = 0.9 * first + 0.1 * gradient**2
        return rate * gradient / (np.sqrt(first) + 1e-4), (first, second)
    if kind == "AdaDelta":
        first = 0.9 * first + 0.1 * gradient**2
        step = gradient * np.sqrt((second + 1e-4) / (first + 1e-4))
        return rate * step, (first, 0.9 * second + 0.1 * step**2)
    first = 0.8 * first + (1 - 0.8) * gradient
    second = 0.95 * second + (1 - 0.95) * gradient**2
    correction = np.sqrt(1 - 0.95 ** (iteration + 1)) / (1 - 0.8 ** (iteration + 1))
    return rate * correction * first / (np.sqrt(second) + 1e-8), (first, second)


def caffe(kind, values, kept, images, labels, iterations):
    """A softmax regression by Caffe's rule. values: weight (784, 10) and bias; kept: of both, what is remembered."""
    inputs, wanted = images.flatten(1).double().numpy(), np.eye(10)[labels.numpy()]
    for iteration in iterations:
        scores = np.exp(inputs @ values[0] + values[1])
        errors = (scores / scores.sum(1, keepdims=True) - wanted) / SAMPLES
        rate = 0.05 * 0.1 ** (iteration // 6)
        for place, gradient in enumerate((inputs.T @ errors, errors.sum(0))):
            lr_mult, decay_mult = FACTORS[place]
            gradient = gradient + 0.01 * decay_mult * values[place]
            step, kept[place] = update(kind, gradient, kept[place], rate * lr_mult, iteration)
            values[place] = values[place] - step
    return values, kept


def begun():
    generator = np.random.default_rng(3)
    values = [generator.normal(0, 0.1, (784, 10)), np.zeros(10)]
    return values, [(np.zeros_like(one), np.zeros_like(one)) for one in values]


def written(kept, values, *, twice, net=NET):
    """The files of a solver that stopped."""
    Path("net.prototxt").write_text(net)
    caffemodel(Path("stopped.caffemodel"), {"ip": values})
    histories = [first for first, _ in kept] + ([second for _, second in kept] if twice else [])
    return solverstate(Path("stopped.solverstate"), STOPPED, "snapshots/stopped.caffemodel", histories)


def session(kind, snapshot, *overrides, solver=SOLVER):
    Path("solver.prototxt").write_text(f'{solver} type: "{kind}" {TYPES[kind]}')
    more = ["data.source={name: idx, folder: .}", "evaluate.every=never", *overrides]
    given = {one.partition("=")[0] for one in more} | {"data.source"}
    found = session_settings(Path("solver.prototxt"), 1, given, read_snapshot(snapshot))
    return read_from(Session, found.settings, more)


def stopped(kind, digits):
    values, kept = caffe(kind, *begun(), *digits, range(STOPPED))
    return written(kept, values, twice=kind in ("AdaDelta", "Adam")), values, kept


@pytest.mark.parametrize("kind", TYPES)
def test_a_run_continues_where_caffe_s_solver_stopped(digits, kind):
    snapshot, values, kept = stopped(kind, digits)
    one = session(kind, snapshot)
    first_checkpoint(one, read_snapshot(snapshot)).write(Checkpoints(Path("checkpoints")))
    found = trained(0, 1, one)
    assert len(found.rows) == END - STOPPED
    before = list(values)
    expected, _ = caffe(kind, values, kept, *digits, range(STOPPED, END))
    for name, was, value in zip(("ip.weight", "ip.bias"), before, expected, strict=True):
        moved = np.abs(value - was).max()
        assert moved > 1e-5
        np.testing.assert_allclose(found.parameters[name].numpy(), value.T, rtol=0, atol=2e-3 * moved)


def on_workers(rank, world_size, one, folder):
    return trained(rank, world_size, one, folder).parameters


def on_servers(rank, world_size, one, snapshot):
    if rank == 0:
        run = RunDirectory.create(Path("runs"), "it", "it", one.to_yaml())
        first_checkpoint(one, read_snapshot(snapshot)).write(Checkpoints(run.checkpoints))
    return served(rank, world_size, one)


def test_a_snapshot_in_hdf5_says_the_same(digits):
    h5py = pytest.importorskip("h5py", reason="needs the extra hdf5")
    snapshot, _, kept = stopped("SGD", digits)
    with h5py.File("stopped.solverstate.h5", "w") as opened:  # as Caffe does: arrays of one number, fixed strings
        opened.create_dataset("iter", data=np.array([STOPPED], dtype=np.int32))
        opened.create_dataset("current_step", data=np.array([1], dtype=np.int32))
        opened.create_dataset("learned_net", data=np.bytes_("snapshots/stopped.caffemodel"))
        for number, (values, _) in enumerate(kept):
            opened.create_dataset(f"history/{number}", data=values.astype(np.float32))
    ours, other = read_snapshot(Path("stopped.solverstate.h5")), read_snapshot(snapshot)
    assert (ours.iterations, ours.weights) == (other.iterations, other.weights)
    for one, same in zip(ours.history, other.history, strict=True):
        assert np.array_equal(one.values(), same.values())
    with h5py.File("stopped.solverstate.h5", "a") as opened:
        del opened["iter"]
    with pytest.raises(SettingError, match=r"^stopped\.solverstate\.h5: has no `iter`; accepted: HDF5 as Caffe writes"):
        read_snapshot(Path("stopped.solverstate.h5"))


@pytest.mark.slow  # the one above continues every kind of snapshot
def test_two_workers_and_servers_continue_as_one_process_does(digits, workers):
    snapshot, values, kept = stopped("SGD", digits)
    one, folder = session("SGD", snapshot.absolute()), Path("replicated").absolute()
    first_checkpoint(one, read_snapshot(snapshot)).write(Checkpoints(folder))
    expected, _ = caffe("SGD", values, kept, *digits, range(STOPPED, END))
    found = [
        workers(2, on_workers, replace(one, strategy=Strategy(workers=2)), folder)[0],
        workers(3, on_servers, over(one, 2, 1), snapshot.absolute())[0].parameters,
    ]
    for parameters in found:
        for name, value in zip(("ip.weight", "ip.bias"), expected, strict=True):
            np.testing.assert_allclose(parameters[name].numpy(), value.T, rtol=1e-4, atol=1e-6)


BATCH_NORM = NET.replace(
    'layer { name: "loss"', 'layer { name: "bn" type: "BatchNorm" bottom: "ip" top: "ip" }\nlayer { name: "loss"'
)


def test_histories_of_batch_norm_s_statistics_are_passed_over(digits):
    _, values, kept = stopped("SGD", digits)
    statistics = [(np.zeros(size), None) for size in (10, 10, 1)]
    snapshot = written([*kept, *statistics], values, twice=False, net=BATCH_NORM)
    caffemodel(Path("stopped.caffemodel"), {"ip": values, "bn": [np.ones(10), np.ones(10), np.ones(1)]})
    first = first_checkpoint(session("SGD", snapshot), read_snapshot(snapshot))
    assert first.step == STOPPED


@pytest.mark.parametrize(
    ("kind", "of", "sentence"),
    [
        ("Adam", "SGD", "has 2 histories; accepted: 4, which adam has of this network: it is of another solver's type"),
        ("SGD", "AdaDelta", "has 4 histories; accepted: 2, which caffe_sgd has of this network: it is of another"),
        ("AdaGrad", "SGD", "history 0 has values below 0, and adagrad has sums of squares of ip.weight: it is of ano"),
    ],
)
def test_a_snapshot_of_another_solver_s_type_is_refused(digits, kind, of, sentence):
    snapshot, *_ = stopped(of, digits)
    with pytest.raises(SettingError) as error:
        first_checkpoint(session(kind, snapshot), read_snapshot(snapshot))
    assert str(error.value).startswith(f"stopped.solverstate: {sentence}")
    assert "\n" not in str(error.value)


def test_what_does_not_fit_is_said_in_one_sentence(digits):
    snapshot, values, kept = stopped("SGD", digits)
    with pytest.raises(SettingError, match=rf"max_iter is {STOPPED}; accepted: above the {STOPPED} iterations of stop"):
        session("SGD", snapshot, solver=SOLVER.replace(f"max_iter: {END}", f"max_iter: {STOPPED}"))
    one = session("SGD", snapshot)
    with pytest.raises(
        SettingError, match="optimizer is adamw, which no snapshot of Caffe's is of; accepted: caffe_sgd"
    ):
        first_checkpoint(session("SGD", snapshot, "optimizer={name: adamw}"), read_snapshot(snapshot))
    wide = written([(kept[0][0].T[:, :9], None), kept[1]], values, twice=False)
    with pytest.raises(SettingError, match=r"history 0 has the shape 10x9; accepted: 784x10, that of ip.weight"):
        first_checkpoint(one, read_snapshot(wide))
    Path("stopped.caffemodel").rename("other.caffemodel")
    with pytest.raises(SettingError, match=r"its caffemodel snapshots/stopped.caffemodel: no such file; accepted"):
        read_snapshot(snapshot)
    assert read_snapshot(snapshot, Path("other.caffemodel")).weights.name == "other.caffemodel"
    with pytest.raises(SettingError, match=r"solver.prototxt: .* binary protobuf"):
        read_snapshot(Path("solver.prototxt"))


@pytest.mark.skipif(not (SHARED / "caffe").is_dir(), reason="there is no ../shared/caffe beside the checkout")
def test_a_snapshot_of_caffe_s_own_is_read():
    folder = SHARED / "caffe" / "cifar10_quick"
    found = read_snapshot(folder / "cifar10_quick_iter_5000.solverstate", folder / "cifar10_quick_iter_5000.caffemodel")
    assert found.iterations == 5000
    assert [one.count for one in found.history] == [2400, 32, 25600, 32, 51200, 64, 65536, 64, 640, 10]
