"""Parameter servers take some settings and refuse others: one sentence each, before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from volary.consistency import ROOM as MODELS
from volary.errors import SettingError
from volary.exchange import ROOM as EXCHANGES
from volary.session import Session
from volary.session.fitting.needs import TRAITS
from volary.session.reading.problems import SessionError
from volary.session.script import Script
from volary.session.surviving import survives

SERVER = {"name": "server", "servers": 2}
CUT = {"workers": 4, "exchange": SERVER, "partition": {"name": "mesh", "axes": {"data": 2, "tensor": 2}}}
LEVEL_3 = {"name": "sharded", "level": 3}


def made(strategy: dict[str, Any], **more: Any) -> Session:
    return Session(network="lenet", data={"source": "digits", **more.pop("data", {})}, strategy=strategy, **more)


@pytest.mark.parametrize("consistency", ["bsp", "ssp", "async", "backup", {"name": "backup", "epoch": 0.75}])
@pytest.mark.parametrize("servers", [1, 3, "colocated"])
def test_every_model_goes_with_servers(consistency, servers):
    strategy = made({"workers": 3, "consistency": consistency, "exchange": {**SERVER, "servers": servers}}).strategy
    assert strategy.servers == (3 if servers == "colocated" else servers)


@pytest.mark.parametrize(
    ("strategy", "more", "sentence"),
    [
        ({"consistency": "ssp", "exchange": "allreduce"}, {}, "accepted: exchange=server, or consistency=bsp"),
        ({"exchange": {**SERVER, "servers": 0}}, {}, "servers: is 0; accepted: a whole number, 1 or more, or 'coloc"),
        ({"exchange": {**SERVER, "replicas": 3}}, {}, "replicas: is 3; accepted: 1 or 2"),
        ({"exchange": {"name": "server", "replicas": 2}}, {}, "is 2; accepted: up to 1, as there are so many servers"),
        (
            {"exchange": SERVER, "backend": "gloo"},
            {},
            "connections are its own (exchange.transport); accepted: auto",
        ),
        ({"exchange": SERVER, "consistency": {"name": "backup", "k": 9}}, {}, "consistency.k: is 9; accepted: 1 to 2"),
        (
            {"exchange": SERVER, "consistency": "ssp"},
            {"train": {"clip_norm": 1.0}},
            "each gradient is an update of its own: no step of all workers has a gradient whose norm could be found; "
            "accepted: train.clip_value, or consistency=bsp",
        ),
        (
            {"codec": {"fc*": "factors"}},
            {"train": {"precision": "bf16"}},
            "compute in their weights' own type; accepted: fp32, or another codec, as codec=auto",
        ),
        ({"exchange": SERVER}, {"train": {"precision": "fp16"}}, "slice by slice; accepted: fp32 or bf16"),
        (
            CUT | {"consistency": "backup"},
            {},
            "would have to drop contributions alike; accepted: consistency=bsp, ssp or async, or partition=data",
        ),
        (
            CUT | {"consistency": "local"},
            {},
            "each worker updates all parameters; accepted: consistency=bsp, ssp or async, or partition=data",
        ),
        (CUT | {"codec": "factors"}, {}, "layers that are cut hand over no vectors; accepted: codec=auto, or one that"),
        (
            CUT | {"partition": {"name": "hybrid"}},
            {},
            "portions of a batch are handed out; accepted: exchange=allreduce",
        ),
        (
            {"exchange": SERVER, "codec": {"name": "factors", "neighbours": 1}},
            {},
            "send to servers alone",
        ),
        (
            {"exchange": {"name": "allreduce", "behind": True}},
            {"train": {"clip_norm": 1.0}},
            "as they come",
        ),
        ({"exchange": SERVER}, {"data": {"batch": "auto"}}, "are handed out; accepted: fixed"),
        (
            {"partition": LEVEL_3},
            {"data": {"batch": "auto"}},
            "compute with it; accepted: fixed, or partition.level=2",
        ),
        (
            {"partition": LEVEL_3, "exchange": SERVER},
            {},
            "accepted: exchange=allreduce, with route auto, ring or shared",
        ),
        ({"partition": LEVEL_3, "consistency": "local"}, {}, "each worker updates all parameters; accepted: consiste"),
        (
            {"consistency": {"name": "local", "outer": "lamb"}},
            {},
            "outer: is lamb, which needs whole parameters, and servers keep parts of them; accepted: one that updates",
        ),
        (
            {"consistency": {"name": "local", "doubles": 100}},
            {},
            "most is not given, and the period doubles every 100 steps, without an end; accepted: the longest period",
        ),
        ({"consistency": {"name": "local", "most": 64}}, {}, "doubles is not given; accepted beside most: a number"),
        ({"partition": LEVEL_3 | {"level": 4}}, {}, "partition.level: is 4; accepted: one of: 1, 2, 3"),
    ],
)
def test_what_does_not_go_together_is_refused(strategy, more, sentence):
    with pytest.raises((SessionError, SettingError)) as refused:
        made({"workers": 2, **strategy}, **more)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("exchange", ["allreduce", SERVER])
def test_where_differences_of_parameters_travel_they_are_not_sent_as_factors(exchange):
    with pytest.raises(SettingError, match="codec: is several by pattern, and with consistency=local differences"):
        made({"workers": 2, "exchange": exchange, "consistency": "local", "codec": {"fc*": "factors"}})
    made({"workers": 2, "exchange": exchange, "consistency": "local", "codec": "auto"})


def test_a_loop_of_ones_own_takes_every_model_over_servers_and_a_warm_up_there():
    for model in MODELS.names():
        made_of = MODELS.load(model)()
        if not made_of.equal or made_of.threads > 1 or made_of.pieces(2):  # see the models' own tests
            continue
        Script(function="own.py:train", strategy={"workers": 2, "exchange": "server", "consistency": model})
    codec = {"name": "onebit", "warm_up_samples": 10}
    Script(function="own.py:train", strategy={"workers": 2, "exchange": "server", "codec": codec})


@pytest.mark.parametrize("model", [name for name in MODELS.names() if MODELS.load(name)().needs_server])
def test_a_model_that_needs_a_server_takes_one_that_no_worker_takes_along_and_says_so(model):
    strategy = made({"workers": 3, "consistency": model}).strategy
    assert survives(strategy) == "the loss of workers while one is left; of servers: none"
    (said,) = strategy.remarks
    assert "strategy.exchange is {name: server, servers: 1" in said
    assert not made({"workers": 3, "consistency": "ssp", "exchange": "server"}).strategy.remarks
    assert not made({"workers": 3}).strategy.remarks and not made({}).strategy.servers


@pytest.mark.parametrize("model", MODELS.names())
@pytest.mark.parametrize("name", EXCHANGES.names())
def test_what_a_strategy_survives_follows_from_who_is_needed(name, model):
    consistency = MODELS.load(model)()
    if (name == "allreduce" and consistency.needs_server) or (name == "server" and model == "gossip"):
        return  # refused

    def said(**exchange):
        return survives(made({"workers": 3, "consistency": model, "exchange": {"name": name, **exchange}}).strategy)

    if name != "server":
        assert said() == "no loss of a worker"
        return
    workers = "the loss of workers while one is left" if consistency.elastic else "no loss of a worker"
    assert said() == f"{workers}; of servers: none"
    assert said(servers=2, replicas=2) == f"{workers}; of servers: any one of 2"
    assert said(servers="colocated").startswith("no loss of a worker")
    beside = "the loss of any one worker, with the server beside it" if consistency.elastic else "no loss of a worker"
    assert said(servers="colocated", replicas=2) == f"{beside}; of servers: any one of 3"


@pytest.mark.parametrize("name", EXCHANGES.names())
def test_every_exchange_names_what_it_lacks_in_words_that_are_known_and_goes_with_some_model(name):
    exchange = EXCHANGES.load(name)()
    assert set(exchange.lacks) <= TRAITS
    assert all(why and not why.endswith(".") for why in exchange.lacks.values())
    assert made({"workers": 2, "exchange": exchange}).strategy.exchange == exchange


def test_a_run_of_the_version_before_says_what_its_settings_are_now(tmp_path):
    def said(exchange: str) -> str:
        file = tmp_path / "session.yaml"
        file.write_text(f"network: lenet\ndata: {{source: digits}}\nstrategy:\n  workers: 2\n  exchange: {exchange}\n")
        with pytest.raises(SessionError) as refused:
            Session.read(file)
        return str(refused.value)

    assert said("{name: server, servers: 2, factors: true}").endswith("'factors' is a codec: write codec: factors")
    assert said("{name: server, servers: 2, factors: false}").endswith("'factors' is a codec: leave this out")
    assert "write codec: {name: auto, allow: [int8]} and exchange: {name: allreduce, route: ring}" in said(
        "{name: auto, allow: [int8], route: ring}"
    )
