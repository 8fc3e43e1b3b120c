"""`volary check` reports memory: how much workers take, whether it is there, and what helps."""

from __future__ import annotations

import re

import pytest

from cli._fitting import warnings_in
from volary.engine import local
from volary.run.machine import memory
from volary.train.trying import fitting_memory, worker_memory


def test_more_workers_than_memory_holds_are_refused_before_torch_and_what_is_tight_is_a_warning(check, monkeypatch):
    available = 1 << 30
    monkeypatch.setattr(local, "forks", lambda _: True)
    monkeypatch.setattr(local, "available_bytes", lambda: available)
    monkeypatch.setattr(fitting_memory, "available_bytes", lambda: available)
    monkeypatch.setattr(local, "cores_here", lambda: list(range(64)))
    said = check("strategy.workers=64", "data.batch_size=64")
    assert said.status == 2
    assert said.err == (
        "engine: 64 workers take, at 32 MiB each and 160 MiB once for Python and torch, about 2.2 GiB of memory, "
        "and 1.0 GiB are available; accepted: up to 19 workers\n"
    )
    tight = check("strategy.workers=20", "data.batch_size=64")
    assert tight.status == 0
    assert (
        "20 workers take, at 32 MiB each and 160 MiB once for Python and torch, about 0.8 GiB" in warnings_in(tight)[0]
    )


@pytest.mark.parametrize(
    ("optimizer", "copies", "codec"),
    [
        ("sgd", 2, "none"),
        ("{name: sgd, momentum: 0.9}", 3, "none"),
        ("adam", 4, "none"),
        ("{name: adam, amsgrad: true}", 5, "none"),
        ("adam", 5, "onebit"),
    ],
)
def test_a_network_that_memory_does_not_hold_is_refused_by_what_training_would_take(
    check, optimizer, copies, codec, monkeypatch
):
    # parameters, gradients, what the optimiser keeps, and what a codec's frames leave out
    own = memory.WORKER_BYTES + memory.CODEC_BYTES * (codec != "none")
    needed = memory.IMPORTED_BYTES + 2 * (copies * 4 * 21 + own)
    words = ["strategy.workers=2", f"optimizer={optimizer}", f"strategy.codec={codec}"]
    monkeypatch.setattr(local, "available_bytes", lambda: None)
    monkeypatch.setattr(fitting_memory, "available_bytes", lambda: int(needed / 1.25) - 1)
    refused = check(*words)
    assert refused.status == 2
    assert "; accepted: fewer workers" in refused.err
    assert re.search(r"2 workers take about 0\.[23] GiB of memory, and 0\.[23] GiB are available", refused.err)
    monkeypatch.setattr(fitting_memory, "available_bytes", lambda: int(needed / 1.25) + 1)
    assert check(*words).status == 0


def test_workers_that_keep_shares_take_less_by_what_the_optimiser_keeps_of_the_others(check, monkeypatch):
    needed = memory.IMPORTED_BYTES + 2 * (2 * 4 * 21 + memory.WORKER_BYTES + 2 * 4 * 10)  # a share has 10 of 21 values
    words = ["strategy.workers=2", "optimizer=adam", "strategy.partition=sharded"]
    monkeypatch.setattr(local, "available_bytes", lambda: None)
    monkeypatch.setattr(fitting_memory, "available_bytes", lambda: int(needed / 1.25) - 1)
    assert check(*words).status == 2
    monkeypatch.setattr(fitting_memory, "available_bytes", lambda: int(needed / 1.25) + 1)
    assert check(*words).status == 0


def test_copies_of_shares_count_and_what_is_sent_for_them_in_each_step_is_said(check, monkeypatch):
    words = ["strategy.workers=2", "optimizer=adam", "strategy.partition=sharded", "strategy.recover=memory"]
    said = check(*words)
    assert "\n# copies of shares: with each step a worker sends 132 B to another one\n" in said.err  # 11 of 21 values
    assert "copies of shares: " not in check(*words[:-1]).err
    own = 2 * 4 * 21 + memory.WORKER_BYTES + 2 * 4 * 10
    needed = memory.IMPORTED_BYTES + 2 * (own + 4 * 3 * 4 * 10)
    monkeypatch.setattr(local, "available_bytes", lambda: None)
    monkeypatch.setattr(fitting_memory, "available_bytes", lambda: int(needed / 1.25) - 1)
    assert check(*words).status == 2
    monkeypatch.setattr(fitting_memory, "available_bytes", lambda: int(needed / 1.25) + 1)
    assert check(*words).status == 0


def test_memory_and_time_of_a_step_are_told_beforehand_and_what_helps_where_activations_do_not_fit(check, monkeypatch):
    said = check("data.batch_size=20")
    assert re.search(r"\n# memory: 32 MiB a worker \(.*32 the process\); up to 0 more while a checkpoint", said.err)
    assert re.search(r"\n# batches: up to about [\d,]+ samples fit into the memory that is available\n", said.err)
    assert re.search(r"\n# computing: [\d.e-]+ s a step, 0 s an epoch; reading, communication and updates", said.err)
    monkeypatch.setattr(worker_memory, "available_bytes", lambda: 1000)
    (warning,) = warnings_in(check("data.batch_size=20"))
    assert re.fullmatch(
        r"with activations a worker takes about 0.0 GiB of memory, and 0.0 GiB are available; what helps most: "
        "a smaller data.batch_size, or train.accumulate=2 and more",
        warning,
    )


def test_a_network_whose_gradients_memory_does_not_hold_is_not_tried_and_that_is_said(check, monkeypatch):
    monkeypatch.setattr(fitting_memory, "judge", lambda *_: None)
    monkeypatch.setattr(fitting_memory, "available_bytes", lambda: 100)
    said = check("network=nets.py:Raising")
    assert said.status == 0
    assert warnings_in(said)[0].startswith("the network was not tried on samples: its gradients take")
