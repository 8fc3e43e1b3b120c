"""Sessions whose workers hold parts of layers, and what one device says of each part."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from train._training import Quick, Trained, session, trained
from train.test_equal_workers import RULES
from train.test_sharded import FORTY
from train.test_sharded_zoo import IMAGES, TOKENS, of, zoo
from volary.partition import ROOM
from volary.partition._base import Part
from volary.session import Session
from volary.train.model import build_model
from volary.train.state.seeds import seed_all

STEPS = 8
GPT = {"layers": 2, "heads": 4, "width": 16, "dropout": 0.0, "bias": True}


def sessions(strategy: dict[str, Any]) -> dict[str, Session]:
    """By name: every kind of parameter, rule and step. 10 samples a step, which workers need not divide."""
    adam, sgd, few = RULES["adam"], RULES["sgd"], {"steps": STEPS}
    gpt = of(zoo("gpt", **GPT), TOKENS, adam | {"lr": 1e-3}, strategy)
    untied = of(zoo("gpt", **GPT, tied=False), TOKENS, sgd | {"lr": 0.01}, strategy)
    return {
        "perceptron": session("Exact", optimizer=adam, train=few, strategy=strategy),
        "frozen, tied, unused": session("Odd", optimizer=sgd, source=FORTY, train=few, strategy=strategy),
        "attention": session("Attentive", optimizer=sgd, train=few, strategy=strategy),
        "accumulated": session("Exact", optimizer=sgd, train=few | {"accumulate": 3}, strategy=strategy),
        "clipped by norm": session("Exact", optimizer=sgd, train=few | {"clip_norm": 0.05}, strategy=strategy),
        "clipped by value": session("Exact", optimizer=sgd, train=few | {"clip_value": 0.01}, strategy=strategy),
        "not contiguous": session("Pictures", optimizer=adam, train=few, strategy=strategy),
        "lenet": of(zoo("lenet"), IMAGES, sgd | {"lr": 0.01}, strategy),
        "lenet, channels last": of(zoo("lenet"), IMAGES, sgd | {"lr": 0.01}, strategy, channels_last=True),
        "alexnet-like": of({"name": session("AlexNetLike").network.reference}, IMAGES, adam | {"lr": 1e-3}, strategy),
        "recurrent": of(zoo("lstm", hidden=10, dropout=0.0), TOKENS, adam | {"lr": 1e-3}, strategy),
        "transformer": gpt,
        "transformer whose embedding is its own": untied,
        "transformer of documents": of(zoo("gpt", **GPT, documents=True), TOKENS, sgd | {"lr": 0.01}, strategy),
    }


def train_all(rank: int, world_size: int, strategy: dict[str, Any]) -> dict[str, Trained]:
    return {name: trained(rank, world_size, one, name, disk=Quick()) for name, one in sessions(strategy).items()}


def part_of(one: Session, rank: int, ranks: int) -> Part:
    """The part of the session's network that a rank runs."""
    seed_all(one.train.seed)
    module = build_model(one, torch.device("cpu")).module
    part: Part = one.strategy.partition.part(module, rank, ranks)
    return part


def blocks(one: Session, rank: int, ranks: int) -> dict[str, Any]:
    """The blocks that a rank of the session keeps, by the name of the tensor."""
    return dict(part_of(one, rank, ranks).holdings.blocks)


def assert_same(found: Trained, expected: Trained, own: dict[str, Any], where: str, atol: float = 1e-11) -> None:
    """A rank's values are its part of one device's."""
    assert found.losses == pytest.approx(expected.losses, abs=1e-6), where
    assert found.parameters.keys() == expected.parameters.keys()
    for name, values in expected.parameters.items():
        wanted: Tensor = own[name].taken_from(values) if name in own else values
        torch.testing.assert_close(
            found.parameters[name], wanted, rtol=0, atol=atol, msg=lambda text, name=name: f"{where} {name}: {text}"
        )


assert ROOM.names()
