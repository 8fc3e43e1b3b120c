"""N workers at a global batch are one worker at that batch: 20 steps, to the rounding of 64 bits."""

from __future__ import annotations

import pytest
import torch

from train._training import Trained, session, trained
from train._user_data import points
from train._user_networks import Exact
from volary.data.order import epoch_order
from volary.session import Session

RULES = {
    "sgd": {"name": "sgd", "lr": 0.2, "momentum": 0.9, "weight_decay": 0.01},
    "adam": {"name": "adam", "lr": 0.02},
    "adagrad": {"name": "adagrad", "lr": 0.1},
}
ROUNDING = 1e-11


def sessions() -> dict[str, Session]:
    # 41 samples: 10 of them a step are divided by 3 and 4 unevenly, and the epoch's last one is for rank 0 alone
    found = {name: session("Exact", optimizer=rule) for name, rule in RULES.items()}
    found["accumulated"] = session("Exact", optimizer=RULES["sgd"], train={"steps": 20, "accumulate": 2})
    found["clipped by norm"] = session("Exact", optimizer=RULES["sgd"], train={"steps": 20, "clip_norm": 0.05})
    found["clipped by value"] = session("Exact", optimizer=RULES["sgd"], train={"steps": 20, "clip_value": 0.01})
    found["in many buckets"] = session("Exact", optimizer=RULES["sgd"], strategy={"bucket_mb": 1e-4})
    # 43 samples: the epoch's last 3 are one each for 3 workers, and for rank 0 alone among 2 or 4
    source, together = {"name": "points", "samples": 43}, {"steps": 20, "sync_batch_norm": True}
    found["batch norm"] = session("Normed64", source=source, train=together)
    found["not contiguous"] = session("Pictures", optimizer=RULES["adam"])
    return found


def train_all(rank: int, world_size: int) -> dict[str, Trained]:
    return {name: trained(rank, world_size, one, name) for name, one in sessions().items()}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("alone"))
        return train_all(0, 1)


def assert_as_alone(found: dict[str, Trained], alone: dict[str, Trained], rank: int) -> None:
    """A rank has the parameters and losses of one device, in each session."""
    for name, one in alone.items():
        for parameter, expected in one.parameters.items():
            torch.testing.assert_close(
                found[name].parameters[parameter],
                expected,
                rtol=0,
                atol=ROUNDING if "small" not in one.parameters else 1e-5,  # which is of 32 bits
                msg=lambda text, where=(name, rank, parameter): f"{where}: {text}",
            )
        assert found[name].losses == pytest.approx(one.losses, abs=1e-6)


@pytest.mark.parametrize("world_size", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 4))])
def test_n_workers_equal_one_over_20_steps(workers, alone, world_size):
    everyone = workers(world_size, train_all)
    shares = [[row.samples for row in step] for step in zip(*(found["sgd"].rows for found in everyone), strict=True)]
    assert [sum(step) for step in shares] == [10, 10, 10, 10, 1] * 4
    assert shares[4] == [1] + [0] * (world_size - 1)
    for rank, found in enumerate(everyone):
        for name, one in alone.items():
            assert found[name].outcome == "finished"
            assert len(found[name].rows) == 20
            for parameter, expected in one.parameters.items():
                torch.testing.assert_close(
                    found[name].parameters[parameter],
                    expected,
                    rtol=0,
                    atol=ROUNDING,
                    msg=lambda text, where=(name, rank, parameter): f"{where}: {text}",
                )
            assert found[name].losses == pytest.approx(one.losses, abs=1e-6)  # agreed on in 32 bits
            # a step without a sample is no reason for a warning, a parameter that nobody uses is
            unused = ["unused.weight", "unused.bias"] if rank == 0 and "unused.weight" in one.parameters else []
            told = [
                text["text"].partition(" had no gradient ")[0].split(", ") for text in found[name].events("warning")
            ]
            assert [sorted(names) for names in told] == ([sorted(unused)] if unused else []), "one warning for all"


def test_accumulated_parts_equal_the_whole_share(alone):
    for name, expected in alone["sgd"].parameters.items():
        torch.testing.assert_close(alone["accumulated"].parameters[name], expected, rtol=0, atol=ROUNDING)


def by_hand(optimizer: str) -> dict[str, torch.Tensor]:
    """The same training, as one would write it without Volary."""
    torch.manual_seed(1)
    module = Exact()
    rule = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.2, momentum=0.9, weight_decay=0.01),
        "adam": lambda p: torch.optim.Adam(p, lr=0.02),
        "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
        "clipped by norm": lambda p: torch.optim.SGD(p, lr=0.2, momentum=0.9, weight_decay=0.01),
        "clipped by value": lambda p: torch.optim.SGD(p, lr=0.2, momentum=0.9, weight_decay=0.01),
    }[optimizer](module.parameters())
    inputs, targets = points("train").tensors
    for epoch in range(4):
        for rows in epoch_order(41, seed=1, epoch=epoch, shuffle=True).split(10):
            rule.zero_grad()
            torch.nn.functional.cross_entropy(module(inputs[rows]), targets[rows]).backward()
            if optimizer == "clipped by norm":
                torch.nn.utils.clip_grad_norm_(module.parameters(), 0.05)
            if optimizer == "clipped by value":
                torch.nn.utils.clip_grad_value_(module.parameters(), 0.01)
            rule.step()
    return {name: parameter.detach() for name, parameter in module.named_parameters()}


@pytest.mark.parametrize("name", ["sgd", "adam", "adagrad", "clipped by norm", "clipped by value"])
def test_one_worker_equals_the_loop_one_would_write_by_hand(alone, name):
    for parameter, expected in by_hand(name).items():
        torch.testing.assert_close(alone[name].parameters[parameter], expected, rtol=0, atol=ROUNDING)
