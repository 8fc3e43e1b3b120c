"""What goes with parameter servers, and what does not: one sentence each, before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from volary.errors import SettingError
from volary.session import Session
from volary.session.problems import SessionError
from volary.session.script import Script

SERVER = {"name": "server", "servers": 2}


def made(strategy: dict[str, Any], **more: Any) -> Session:
    return Session(network="lenet", data={"source": "digits", **more.pop("data", {})}, strategy=strategy, **more)


@pytest.mark.parametrize("consistency", ["bsp", "ssp", "async", "backup", {"name": "backup", "epoch": 0.75}])
@pytest.mark.parametrize("servers", [1, 3, "colocated"])
def test_every_model_goes_with_servers(consistency, servers):
    strategy = made({"workers": 3, "consistency": consistency, "exchange": {**SERVER, "servers": servers}}).strategy
    assert strategy.exchange.count(strategy.workers) == (3 if servers == "colocated" else servers)


@pytest.mark.parametrize(
    ("strategy", "more", "sentence"),
    [
        ({"consistency": "ssp"}, {}, "set strategy.exchange=server, or strategy.consistency=bsp"),
        ({"exchange": {**SERVER, "servers": 0}}, {}, "servers: is 0; accepted: a whole number, 1 or more, or 'coloc"),
        ({"exchange": {**SERVER, "replicas": 3}}, {}, "replicas: is 3; accepted: 1 or 2"),
        ({"exchange": {"name": "server", "replicas": 2}}, {}, "is 2; accepted: up to 1, as there are so many servers"),
        ({"exchange": SERVER, "backend": "gloo"}, {}, "backend: is gloo; accepted: auto"),
        ({"exchange": SERVER, "consistency": {"name": "backup", "k": 9}}, {}, "consistency.k: is 9; accepted: 1 to 2"),
        ({"exchange": SERVER}, {"train": {"clip_norm": 1.0}}, "accepted: not with exchange=server"),
        ({"exchange": SERVER}, {"train": {"precision": "fp16"}}, "accepted: fp32 or bf16 with"),
        ({"exchange": SERVER}, {"data": {"batch": "auto"}}, "accepted: fixed with"),
    ],
)
def test_what_does_not_go_together_is_refused(strategy, more, sentence):
    with pytest.raises((SessionError, SettingError)) as refused:
        made({"workers": 2, **strategy}, **more)
    assert sentence in str(refused.value)


def test_a_loop_of_ones_own_has_no_servers():
    with pytest.raises(SettingError, match="accepted: allreduce, auto, factors; or"):
        Script(function="own.py:train", strategy={"workers": 2, "exchange": "server"})
