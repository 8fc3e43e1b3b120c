"""`volary check` knows what training would say: of the network, the loss, the data, and the machine."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from cli._fitting import FITTING, warnings_in
from volary.engine import local
from volary.session.train_section import MOST_STEPS
from volary.train.trying import run_length


def test_a_session_that_fits_has_no_warning(check):
    said = check()
    assert said.status == 0
    assert said.err.splitlines()[0] == "# parameters: 21"
    assert not warnings_in(said)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ("network=nets.py:Unmade", "network 'nets.py:Unmade' raised ValueError at nets.py:10 in __init__: no such"),
        (
            "network={name: nets.py:formatted, width: abc}",
            "network 'nets.py:formatted' raised TypeError at nets.py:36 in formatted: width is abc",
        ),
        (
            "network=nets.py:Raising",
            "network 'nets.py:Raising' raised IndexError at nets.py:13 in forward, given inputs of shape "
            "(samples, 6) and "
            "type float32: list index out of range",
        ),
        (
            "network=nets.py:Narrow",
            "network 'nets.py:Narrow' raised RuntimeError at nets.py:16 in forward, given inputs of shape (samples, 6) "
            "and type float32: ",
        ),
        ("network=nets.py:Mapping", "network 'nets.py:Mapping' gives an object of type dict; cross_entropy takes a"),
        (
            "network=nets.py:Pair",
            "network 'nets.py:Pair' gives a tuple whose item 2 is of type dict; cross_entropy takes a tensor, or "
            "a tuple "
            "of scores: the answer, then auxiliary answers",
        ),
        (
            "network=nets.py:Fixed",
            "network 'nets.py:Fixed' has no parameter to train; accepted: at least one with requires_grad",
        ),
        ("train.freeze=[{match: '*'}]", "train.freeze leaves no parameter to train; accepted: rules that do not fit"),
        (
            "network=nets.py:Detached",
            "network 'nets.py:Detached' gives an output without a gradient (is there a detach(), a no_grad() or "
            "an argmax "
            "in its forward?)",
        ),
        (
            "network=nets.py:Aside",
            "network 'nets.py:Aside' and loss 'cross_entropy' give no parameter a gradient: none of them is part "
            "of the "
            "loss",
        ),
        (
            "loss=losses.py:vector",
            "loss 'losses.py:vector' gives a tensor of shape (2,); accepted: a scalar tensor, the mean over the "
            "samples",
        ),
        (
            "loss=losses.py:number",
            "loss 'losses.py:number' gives a float; accepted: a scalar tensor, the mean over the samples",
        ),
        (
            "loss=losses.py:detached",
            "loss 'losses.py:detached' gives a tensor without a gradient (is there a detach(), an item() or a "
            "no_grad() "
            "in it?)",
        ),
        (
            "loss=losses.py:raising",
            "loss 'losses.py:raising' raised KeyError at losses.py:9 in raising: 'margin' (given outputs (samples, 3) "
            "float32 and targets (samples) int64)",
        ),
        ("loss=losses.py:Unmade", "loss 'losses.py:Unmade' raised RuntimeError at losses.py:12 in __init__: no table"),
        (
            "loss=mse",
            "network 'nets.py:Net' gives shape (samples, 3); mse takes the shape of the data's targets, (samples)",
        ),
        (
            "optimizer={name: losses.py:rule, lr: 1.0}",
            "optimizer 'losses.py:rule' raised TypeError at losses.py:14 in rule: no such rule",
        ),
        (
            "data.source=data.py:Torn",
            "data 'data.py:Torn': sample 19 raised OSError at data.py:13 in __getitem__: truncated",
        ),
        (
            "data.source=data.py:Unnumbered",
            "network 'nets.py:Net' needs classes; given: no arguments; the data does not say how many classes "
            "there are; accepted: network.classes (in a regression the number of outputs: 1 for a column of numbers), "
            "or a data set of your own with an attribute `classes`",
        ),
        (
            "data.source=data.py:Unmade",
            "data 'data.py:Unmade' raised FileNotFoundError at data.py:25 in __init__: [Errno 2] No such file or "
            "directory: 'nowhere/at/all'",
        ),
        (
            "data.source=data.py:Floats",
            "loss 'cross_entropy' raised RuntimeError: expected",
        ),
        (
            "data.source=data.py:Unfit",
            "the target of sample 19 is 3; accepted: 0 to 2, since the network gives 3 outputs, one for each class",
        ),
        (
            "data.source=data.py:Unseen",
            "validation data: the target of sample 0 is 7; accepted: 0 to 2, since the network gives 3 outputs",
        ),
        (
            "train.device=cuda strategy.workers=64",
            "train.device is 'cuda' for 64 workers here, and 0 CUDA devices are found; accepted: cpu or auto, or fewer "
            "workers",
        ),
        (
            "train.epochs=1e11 train.steps=null",
            "train.epochs is 1e+11, which are 300,000,000,000 steps; accepted: up to",
        ),
    ],
)
def test_what_training_would_refuse_is_refused_in_one_sentence(check, settings, sentence, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(run_length, "MOST_STEPS", 10**11)
    words = [settings] if "{" in settings else settings.split()
    said = check(*words, *(["data.batch_size=64"] if "64" in settings else []))
    assert said.status == 2
    assert said.err.startswith(sentence)
    assert said.err.count("\n") == 1
    assert not said.out
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ("data.source=data.py:Ragged", "sample 19 is (7,) torch.float32, sample 0 is (6,) torch.float32; accepted:"),
        ("data.source=data.py:Whole", "so there is no validation data to evaluate on; accepted:"),
        ("data.source=data.py:Whole", "or the setting evaluate.every=never"),
        (
            "data.source=data.py:Other",
            "evaluating network 'nets.py:Net' on a sample of the validation data raised RuntimeError at nets.py:7 in "
            "forward: ",
        ),
        ("train.precision=fp16", "train.precision is 'fp16', and fp16 needs a CUDA device; accepted: fp32 or bf16"),
        ("train.steps=1000000000001", "train.steps: is 1000000000001; accepted: up to 1,000,000,000,000"),
        ("train.epochs=1e30", "train.epochs: is 1e+30; accepted: up to 1,000,000,000,000"),
        ("strategy.backend=nccl", "backend is 'nccl', and training is on the CPU"),
        ("network=nets.py:Normed data.batch_size=1", "as a worker gets at a time): "),
        ("network=nets.py:Normed data.batch_size=1", "got a single value a channel; accepted: 2 samples or more for"),
    ],
)
def test_what_is_refused_says_what_to_write_instead(check, settings, part, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    said = check(*settings.split())
    assert (said.status, part in said.err) == (2, True), said.err


def test_fp16_is_refused_in_the_words_of_doctor(check, volary, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found = {each["what"]: each["why"] for each in json.loads(volary("doctor", "--json").out)["findings"]}
    assert "fp16 needs a CUDA device" in found["train.precision"]
    assert "fp16 needs a CUDA device" in check("train.precision=fp16").err


LATE = ", and the run ends after 4 steps: it does not come to that"


@pytest.mark.parametrize(
    ("settings", "warning"),
    [
        (
            "data.batch_size=100",
            "data.batch_size is 100, more than the training data has (20): each step learns from all of them",
        ),
        (
            "schedule={name: cosine, warmup: 5}",
            "schedule.warmup is 5, longer than the run of 4 steps: the learning rate never reaches what "
            "optimizer.lr says",
        ),
        ("train.stop_at=9 epochs", f"train.stop_at is 9 epochs{LATE}"),
        ("train.average={name: swa, start: 4 steps}", f"train.average.start is 4 steps{LATE}"),
        ("train.freeze=[{match: fc.bias, until: 3 epochs}]", f"train.freeze.until is 3 epochs{LATE}"),
    ],
)
def test_what_trains_and_is_hardly_meant_is_a_warning(check, settings, warning):
    said = check(settings)
    assert (said.status, warnings_in(said)) == (0, [warning])
    assert json.loads(check(settings, "--json").out)["warnings"] == [warning]


def test_more_workers_than_cores_are_a_warning_with_both_numbers(check, monkeypatch):
    monkeypatch.setattr(local, "cores_here", lambda: [0, 1])
    said = check("strategy.workers=3")
    assert said.status == 0
    assert warnings_in(said) == ["strategy.workers is 3, and 2 cores are usable here: workers take turns on them"]


def test_one_sample_and_a_stream_are_tried_too(check):
    assert check("data.source=data.py:One").status == 0
    streamed = ("data.source=data.py:Flow", "data.shuffle=false")
    assert check(*streamed, "network=nets.py:Normed").status == 0
    refused = check(*streamed, "network=nets.py:Narrow")
    assert (refused.status, "RuntimeError at nets.py:16" in refused.err) == (2, True)


def test_shares_of_one_sample_are_enough_for_batch_norms_over_all_workers(check):
    shares = ("network=nets.py:Normed", "strategy.workers=2", "data.batch_size=2")
    assert check(*shares).status == 2
    assert check(*shares, "train.sync_batch_norm=true").status == 0


def test_a_check_leaves_generators_and_settings_of_the_process_as_they_are(check):
    def now():
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    torch.set_num_threads(2)  # two workers of two cores have one each
    before = (now(), torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled())
    assert check("network=nets.py:Normed", "strategy.workers=2").status == 0
    assert (now(), torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()) == before


def test_a_mistake_in_the_session_is_told_without_torch(fresh):
    Path("s.yaml").write_text(FITTING.replace("Good", "Missing.x").replace("data.py", "none.py"))
    code = (
        "import sys\nfrom volary.cli.command.main import run\n"
        "status = run(['check', 's.yaml'])\nprint(status, 'torch' in sys.modules)\n"
    )
    assert fresh("-c", code).out == "2 False\n"


def test_the_most_steps_of_a_run_are_more_than_anybody_waits_for():
    assert MOST_STEPS == 10**12
    assert sys.maxsize > MOST_STEPS


def test_a_regression_on_a_table_is_told_to_say_how_many_outputs_there_are(volary):
    Path("t.csv").write_text("price,area\n1.5,10\n2.5,20\n")
    Path("s.yaml").write_text(
        "network: softmax\nloss: mse\n"
        "data: {source: {name: csv, train: t.csv, test: t.csv, target: price, kind: number}, batch_size: 2}\n"
    )
    said = volary("check", "s.yaml")
    assert said.status == 2
    assert "network.classes is not set" in said.err
    assert "in a regression the number of outputs: 1 for a column of numbers" in said.err
    assert volary("check", "s.yaml", "network.classes=1").status == 0


@pytest.mark.parametrize(
    "setting",
    [
        "run.name=a b",
        "run.name=" + 101 * "x",
        "run.name=-x",
        "run.name=taken",
        "run.folder=a-file",
        "run.folder=/proc/nowhere",
        "checkpoint.path=a-file",
        "checkpoint.path=/proc/nowhere",
        "strategy.interface=none-such",
    ],
)
def test_what_train_refuses_of_a_runs_name_and_places_check_refuses_in_the_same_words(setting, volary):
    Path("a-file").touch()
    Path("runs/taken").mkdir(parents=True)
    Path("session.yaml").write_text("network: softmax\ndata: {source: digits}\ntrain: {steps: 1}\n")
    checked, trained = volary("check", "session.yaml", setting), volary("train", "session.yaml", setting)
    assert (checked.status, checked.out) == (2, "")
    assert (trained.status, trained.err) == (2, checked.err)
    assert checked.err.startswith((setting.partition("=")[0], "command line: run.name: ", "the run runs/taken "))
    assert [path.name for path in Path("runs").iterdir()] == ["taken"]


def test_a_topology_or_route_that_workers_would_refuse_is_refused_before_they_start(check):
    two = ("strategy.workers=2", "strategy.exchange.name=allreduce")
    said = check(*two, "strategy.exchange.topology=nowhere.yaml")
    assert said.status == 2
    assert said.err.splitlines()[-1].startswith("strategy.exchange: nowhere.yaml: cannot be read: ")
    Path("somewhere.yaml").write_text("subnetworks: 3\n")
    said = check(*two, "strategy.exchange.topology=somewhere.yaml")
    assert said.err.splitlines()[-1].startswith("strategy.exchange: somewhere.yaml: accepted: `subnetworks:`")
    said = check(*two, "strategy.exchange.route=three_level")
    needs = "it needs two or more sub-networks of as many nodes each; found: 1 node of 2 ranks"
    assert said.status == 2
    assert said.err.splitlines()[-1] == f"strategy.exchange: route is 'three_level', but {needs}; nearest: shared"
    assert check("strategy.workers=1", "strategy.exchange.route=three_level").status == 0, "nobody to sum with"


LISTED = """\
network:
  layers:
    - conv: {name: conv1, channels: 20, kernel: 5}
    - pool: {kind: max, size: 2}
    - repeat: {times: 2, block: {residual: {channels: 32}}}
    - linear: {name: fc, outputs: classes}
data: {source: digits}
"""


def test_the_shapes_of_a_network_that_is_a_list_of_layers_are_shown(volary):
    Path("session.yaml").write_text(LISTED)
    said = volary("check", "session.yaml")
    assert said.status == 0, said.err
    assert "# layer conv1: conv, input (1, 28, 28) -> (20, 24, 24), 520 parameters\n" in said.err
    assert "# layer pool1: pool, conv1 (20, 24, 24) -> (20, 12, 12)\n" in said.err
    summary = json.loads(volary("check", "session.yaml", "--json").out)["summary"]
    assert sum(layer["parameters"] for layer in summary["layers"]) == summary["parameters"] == 80_978
    assert summary["layers"][-1]["gives"] == {"fc": [10]}


def test_a_shape_that_does_not_fit_is_named_by_layer_and_line(volary):
    Path("session.yaml").write_text(LISTED.replace("- linear", "- sum: {inputs: [conv1, pool1]}\n    - linear"))
    said = volary("check", "session.yaml")
    assert said.status == 2
    expected = "session.yaml:6:12: layer 'sum1': takes equal shapes (given conv1 (20, 24, 24), pool1 (20, 12, 12))"
    assert expected in said.err
