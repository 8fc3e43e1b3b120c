"""`strategy.recover: memory`: where it cannot be had, one sentence says so before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from volary.errors import SettingError
from volary.session import Session
from volary.session.fitting.own_loop import of_own_loop
from volary.session.reading.problems import SessionError
from volary.session.spec import Strategy
from volary.session.surviving import survives

OWN_STEPS = [{"consistency": name} for name in ("local", "elastic", "gossip")]


def made(strategy: dict[str, Any], **more: Any) -> Session:
    data = {"source": "digits", **more.pop("data", {})}
    return Session(network="lenet", data=data, strategy={"workers": 4, "recover": "memory", **strategy}, **more)


@pytest.mark.parametrize(
    "strategy", [{}, {"codec": "onebit"}, {"exchange": {"name": "allreduce", "route": "ring"}}, *OWN_STEPS]
)
def test_every_route_codec_and_model_over_all_reduce_goes_with_it(strategy):
    assert survives(made(strategy).strategy) == "the loss of workers while one is left"
    assert survives(made({**strategy, "workers": 1}).strategy) == "no loss of a worker"
    with_spares = "the loss of workers while one is left, with 2 to take their places"
    assert survives(made({**strategy, "spares": 2}).strategy) == with_spares


@pytest.mark.parametrize("level", [1, 2, 3])
def test_shares_of_which_another_worker_has_a_copy_go_with_it(level):
    session = made({"partition": {"name": "sharded", "level": level}})
    copies = "but not of one together with the one that has the copy of its share"
    assert survives(session.strategy) == f"the loss of workers while one is left, {copies}"
    assert session.strategy.posts_shares
    assert not made({"partition": "sharded", "recover": "checkpoint"}).strategy.posts_shares


@pytest.mark.parametrize(
    ("strategy", "more", "sentence"),
    [
        ({"recover": "disk"}, {}, "recover"),
        ({"exchange": "server"}, {}, "accepted: recover=checkpoint, or exchange=allreduce"),
        ({"partition": "tensor"}, {}, "no other worker has what the lost one kept; accepted: recover=checkpoint, or"),
        ({"partition": "hybrid"}, {}, "accepted: recover=checkpoint, or partition=data or sharded"),
        ({"consistency": {"name": "local", "quorum": 3}}, {}, "accepted: recover=checkpoint, or exchange=allreduce"),
        ({"backend": "nccl"}, {}, "backend=nccl waits for a lost worker do not end; accepted: auto, gloo"),
        ({"exchange": {"name": "allreduce", "behind": True}}, {}, "accepted: exchange.behind=false, or recover=che"),
        ({}, {"train": {"freeze": [{"match": "fc1", "until": "1 epochs"}]}}, "accepted: until=never, or checkpoint"),
        ({}, {"data": {"batch": "auto"}}, "data.batch tries sizes, which no step repeats; accepted: fixed"),
        ({"spares": -1}, {}, "spares"),
        (
            {"spares": 1, "recover": "checkpoint"},
            {},
            "nobody takes the place of a lost worker; accepted: 0, or recover=",
        ),
        ({"spares": 1}, {"engine": "mpi"}, "engine mpi starts as many workers as train; accepted: 0, or engine=local"),
        ({}, {"train": {"sync_batch_norm": True}}, "bound to all workers; accepted: false, or checkpoint"),
        (
            {"recover": "checkpoint", "wait_for_driver_s": 60},
            {},
            "wait_for_driver_s: is 60, and with recover=checkpoint workers",
        ),
        (
            {"standby": True},
            {},
            "standby: is true, and wait_for_driver_s is 0, so that workers end with their",
        ),
        ({"wait_for_driver_s": -1}, {}, "-1; accepted: from 0 to 86400 (a day)"),
        (
            {"wait_for_driver_s": 60},
            {"engine": "torchrun"},
            "what engine torchrun has started ends with the driver; accepted: 0, or engine=local",
        ),
    ],
)
def test_what_cannot_be_recovered_is_refused_with_what_can(strategy, more, sentence):
    with pytest.raises((SettingError, SessionError)) as problem:
        made(strategy, **more)
    assert sentence in str(problem.value)


@pytest.mark.parametrize("more", [{"spares": 1}, {"wait_for_driver_s": 60}])
def test_where_nothing_recovers_that_alone_is_said_and_nothing_of_settings_that_need_it(more):
    with pytest.raises(SessionError) as raised:
        made({"partition": "pipeline", **more})
    (line,) = str(raised.value).splitlines()
    assert "is memory, and with partition=pipeline no other worker has what the lost one kept" in line


@pytest.mark.parametrize("name", ["bsp", "local", "elastic", "gossip"])
def test_a_loop_of_one_s_own_goes_with_it(name):
    strategy = made({"consistency": name}).strategy
    list(of_own_loop(strategy, early_update=False))


@pytest.mark.parametrize(
    ("strategy", "early_update", "sentence"),
    [
        ({"partition": "sharded"}, False, "nobody has a copy of the shares of your loop's optimisers; accepted: part"),
        ({}, True, "early_update is true, so that updates come after their step; accepted: false"),
        ({"wait_for_driver_s": 60}, False, "a loop of your own ends with its driver; accepted: 0, or a session"),
    ],
)
def test_what_a_loop_of_one_s_own_cannot_do_again_is_refused(strategy, early_update, sentence):
    given = Strategy(**({"workers": 2, "recover": "memory"} | strategy))
    with pytest.raises(SettingError) as problem:
        list(of_own_loop(given, early_update=early_update))
    assert sentence in str(problem.value)
