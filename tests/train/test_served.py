"""Training over parameter servers, on real processes over loopback."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from train._served import Kept, served
from train._training import USER_LOSSES, Trained, session, trained
from train.test_equal_workers import ROUNDING, RULES
from volary.driver.ending import NoWatcher
from volary.driver.start import start
from volary.errors import BadInput, SettingError
from volary.exchange.compression.push_encoding import PushEncoding
from volary.exchange.servers.keeper import ServerKeeper
from volary.session import Session
from volary.session.spec import Strategy
from volary.train.afterwards import check_session

QUICK = ("not contiguous", "measured", "by norms of parameters", "as factors")


def over(one: Session, workers: int, servers: int | str, consistency: Any = "bsp", **more: Any) -> Session:
    """The same session over servers."""
    codec = more.pop("codec", "none")
    exchange = {"name": "server", "servers": servers, **more}
    strategy = Strategy(workers=workers, consistency=consistency, exchange=exchange, codec=codec, bucket_mb=4e-4)
    return replace(one, strategy=strategy)


def equal_ones() -> dict[str, Session]:
    # 41 samples: 10 of them a step are divided by 2 and 3 unevenly, and the epoch's last one is for one worker alone
    found = {name: session("Exact", optimizer=rule) for name, rule in RULES.items()}
    found["accumulated"] = session("Exact", optimizer=RULES["sgd"], train={"steps": 20, "accumulate": 2})
    found["clipped by value"] = session("Exact", optimizer=RULES["sgd"], train={"steps": 20, "clip_value": 0.01})
    found["scheduled"] = session("Exact", schedule={"name": "step", "every": 5})
    found["not contiguous"] = session("Pictures", optimizer=RULES["adam"])
    found["shared"] = session("Tied64")
    found["of whole parameters"] = session("Exact", optimizer={"name": f"{USER_LOSSES}:OwnRule", "lr": 0.2})
    found["by norms of parameters"] = session("Exact", optimizer={"name": "lamb", "lr": 0.05})
    found["as factors"] = session("Wide", batch_size=4, source={"name": "points", "samples": 18})
    loss = {"name": "cross_entropy", "metrics": ["f1", "confusion", "roc_auc"]}
    train, source = {"steps": 20, "histograms": "3 steps"}, {"name": "points_of_classes"}
    found["measured"] = session("Exact", source=source, loss=loss, evaluate={"every": "5 steps"}, train=train)
    chosen = {"folds": 3, "sampling": {"by": "class"}}
    found["drawn of folds"] = session("Exact", source=source, loss="cross_entropy", chosen=chosen)
    return found


def over_servers(rank: int, world_size: int, workers: int, names: Sequence[str]) -> dict[str, Kept | None]:
    found, servers = {}, world_size - workers
    for name in names:
        # bytes in shared memory would not count
        how = {"codec": "factors", "transport": "tcp"} if name == "as factors" else {}
        one = over(equal_ones()[name], workers, servers, **how)
        found[name] = served(rank, world_size, one, name.replace(" ", "-"))
    return found


def asked_ahead(rank: int, world_size: int, models: Sequence[Any]) -> list[tuple[int, int]]:
    """By model: how often parameters were asked for as backward began, in how many steps."""
    asked, found, ask_ahead = [], [], ServerKeeper.ask_ahead

    def counted(exchange: ServerKeeper) -> None:
        asked.append(exchange)
        ask_ahead(exchange)

    ServerKeeper.ask_ahead = counted  # type: ignore[method-assign]  # of this worker's process
    for number, model in enumerate(models):
        one = session("Exact", train={"steps": 6, "accumulate": 2})
        kept = served(rank, world_size, over(one, 1, 1, model), f"asked-{number}")
        found.append((len(asked), len(kept.rows) if kept else 0))
        asked.clear()
    return found


def warmed_up(rank: int, world_size: int) -> list[bool]:
    """Say of each change of the codec's stage whether all that was pushed before it was held."""
    found, held, at, push, wait = list[bool](), [True], PushEncoding.at, ServerKeeper.push, ServerKeeper.settle

    def changing(encoding: PushEncoding, samples: int) -> None:
        before = encoding._now
        at(encoding, samples)
        if encoding._now is not before:
            found.append(held[0])

    def pushing(keeper: ServerKeeper, chunk: int) -> None:
        held[0] = False
        push(keeper, chunk)

    def waiting(keeper: ServerKeeper) -> None:
        wait(keeper)
        held[0] = True

    PushEncoding.at, ServerKeeper.push, ServerKeeper.settle = changing, pushing, waiting  # type: ignore[method-assign]
    one = session("Wide", of={"bits": 32}, train={"steps": 8})
    served(rank, world_size, over(one, 1, 1, "async", codec={"name": "topk", "warm_up_samples": 45}), "warmed")
    return found


@pytest.mark.slow  # tests/exchange has warm-ups
def test_a_warm_up_goes_on_once_nothing_is_on_its_way_in_the_stage_before(workers):
    assert workers(2, warmed_up)[0] == [True, True]


def test_parameters_are_asked_for_once_a_step_as_backward_begins_where_the_model_says_so(workers):
    ahead, exactly, seldom = workers(2, asked_ahead, [
        {"name": "ssp", "staleness": 1}, "bsp", {"name": "async", "fetch_every": 2},
    ])[0]  # fmt: skip
    assert ahead == (6, 6)
    assert exactly == seldom == (0, 6)


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Trained]:
    """The same session on one device."""
    monkeypatch.chdir(tmp_path)
    return cache(lambda name: trained(0, 1, equal_ones()[name], name))


def assert_equal(parameters: dict[str, torch.Tensor], expected: Trained, where: str) -> None:
    for name, values in expected.parameters.items():
        torch.testing.assert_close(
            parameters[name], values, rtol=0, atol=ROUNDING, msg=lambda text, name=name: f"{where}, {name}: {text}"
        )


@pytest.mark.parametrize(
    ("count", "servers", "names"),
    [
        (2, 2, QUICK),
        pytest.param(2, 1, tuple(equal_ones()), marks=pytest.mark.slow),  # a process each, and two cores
        pytest.param(3, 3, tuple(equal_ones()), marks=pytest.mark.slow),
    ],
)
def test_workers_over_servers_equal_one_device_over_20_steps(workers, alone, count, servers, names):
    kept = workers(count + servers, over_servers, count, names)[0]
    for name in names:
        assert kept[name].outcome == kept[name].run_outcome == "finished"
        assert_equal(kept[name].parameters, alone(name), name)
    dense_bytes = sum(8 * values.numel() for values in alone("as factors").parameters.values())
    assert sum(row.sent_bytes for row in kept["as factors"].rows) < 0.7 * 20 * dense_bytes
    figures = [event["figures"] for event in kept["measured"].told("evaluated")]
    assert figures == [pytest.approx(figures) for _, figures in alone("measured").metrics]
    (looked,), (expected,) = _looks(kept["measured"].worker_said), _looks(alone("measured").said)
    assert {key for key in looked if key[0] == "gradient"} == {key for key in expected if key[0] == "gradient"}
    for kind, name in expected:  # a gradient is the worker's own, of its share
        if kind != "gradient":
            assert looked[kind, name] == pytest.approx(expected[kind, name], rel=1e-4, abs=1e-7), (kind, name)


def _looks(said: list[dict[str, Any]]) -> list[dict[tuple[str, str], float]]:
    """The mean magnitude of each histogram of step 3: the first look is never left out."""
    return [
        {(kind, name): magnitude for kind, name, _, _, magnitude, _ in one["histograms"]}
        for one in said
        if "histograms" in one and one["step"] == 3
    ]


LOOSE = {
    "async": {"consistency": "async"},
    "async at intervals": {"consistency": {"name": "async", "push_every": 2, "fetch_every": 3}},
    "ssp": {"consistency": {"name": "ssp", "staleness": 2}},
    "backup": {"consistency": {"name": "backup", "k": 1}},
    "backup by epochs": {"consistency": {"name": "backup", "epoch": 0.75}},
    "encoded": {"consistency": "bsp", "codec": {"name": "topk", "ratio": 0.25}, "pulls": "int8"},
    "halved": {"consistency": "ssp", "codec": "fp16", "pulls": "fp16"},
    "all at once": {
        "consistency": {"name": "async", "push_every": 2, "fetch_every": 3},
        "codec": {"name": "topk", "ratio": 0.25},
        "pulls": "int8",
    },
    "replicated": {"consistency": "async", "replicas": 2},
    "by layer": {
        "consistency": {"name": "ssp", "staleness": 2},
        "codec": {"large*": "factors", "back.weight": {"name": "topk", "ratio": 0.25}, "into*": "none"},
    },
    "chosen": {"consistency": "ssp", "codec": {"name": "auto", "allow": ["onebit"]}},
}


def learn_loosely(rank: int, world_size: int, names: Sequence[str]) -> dict[str, Kept | None]:
    source = {"name": "points", "samples": 100}
    # twice that rate does not learn where gradients are six steps old, as they may be at intervals
    one = session("Wide", of={"bits": 32}, train={"steps": 60}, optimizer={"name": "sgd", "lr": 0.1}, source=source)
    return {name: served(rank, world_size, over(one, 2, 2, **LOOSE[name]), name.replace(" ", "-")) for name in names}


@pytest.mark.slow  # a run of each
def test_every_model_and_codecs_learn(workers):
    first, second, *_ = workers(4, learn_loosely, tuple(LOOSE))
    for name in LOOSE:
        assert first[name].run_outcome == "finished", name
        rows = sorted(first[name].rows + second[name].rows, key=lambda row: row.ended_at)
        assert all(math.isfinite(row.loss) for row in rows), name
        assert sum(row.loss for row in rows[-10:]) < 0.7 * sum(row.loss for row in rows[:10]), name


def stop_and_go_on(rank: int, world_size: int) -> list[Kept | None]:
    one = over(session("Exact", optimizer=RULES["adam"]), 2, 2)
    return [served(rank, world_size, one, until={1: 8}), served(rank, world_size, one)]


def test_a_stopped_run_goes_on_as_if_it_had_not_been(workers, alone):
    stopped, finished = workers(4, stop_and_go_on)[0]
    assert (stopped.outcome, finished.outcome) == ("stopped", "finished")
    assert 8 <= stopped.steps[-1] < 20
    assert finished.steps[-1] == 20
    assert_equal(finished.parameters, alone("adam"), "resumed")


def drop_out(rank: int, world_size: int) -> tuple[Kept | None, Kept | None]:
    one = over(session("Dropping", source={"name": "points", "samples": 40}), 2, 1)
    served(rank, world_size, one, "in-two", until={0: 7})
    return served(rank, world_size, one, "in-two"), served(rank, world_size, one, "in-one")


@pytest.mark.slow  # three runs
def test_a_stopped_run_draws_what_an_uninterrupted_one_draws(workers):
    resumed, uninterrupted = workers(3, drop_out)[0]
    assert_equal(resumed.parameters, uninterrupted, "resumed")


def leave_alone(rank: int, world_size: int) -> Kept | None:
    return served(rank, world_size, over(session("Exact"), 2, 1, "ssp"), until={1: 3})


@pytest.mark.slow  # a run more
def test_a_worker_that_is_asked_to_go_leaves_and_the_others_finish(workers):
    first, second, _ = workers(3, leave_alone)
    assert (first.outcome, second.outcome) == ("finished", "left")
    assert first.steps[-1] == 20


def meet_a_spoilt_sample(rank: int, world_size: int, policy: str) -> Kept | None:
    source = {"name": "spoilt_points", "spoilt": [3]}
    one = session("Exact", source=source, train={"steps": 20, "on_nonfinite": policy})
    return served(rank, world_size, over(one, 2, 1))


@pytest.mark.slow
def test_losses_that_are_not_finite_are_left_out_of_the_update(workers):
    first, second, _ = workers(3, meet_a_spoilt_sample, "skip")
    skipped = [one for kept in (first, second) for one in kept.worker_said if one.get("event") == "skipped"]
    assert len(skipped) == 4  # the sample comes once an epoch
    assert all(bool(values.isfinite().all()) for values in first.parameters.values())
    assert first.steps[-1] == 20


def normalise(rank: int, world_size: int) -> Kept | None:
    return served(rank, world_size, over(session("Dropping", source={"name": "points", "samples": 40}), 2, 1))


@pytest.mark.slow
def test_statistics_of_batch_norm_are_the_mean_of_the_workers_and_its_counter_counts_steps(workers):
    kept = workers(3, normalise)[0]
    running = kept.buffers["layers.1.running_var"]
    assert bool(running.isfinite().all())
    assert not torch.equal(running, torch.ones_like(running))
    assert kept.buffers["layers.1.num_batches_tracked"].item() == 20  # of steps, as each worker counts them


def train_colocated(rank: int, world_size: int) -> Kept | None:
    return served(rank, world_size, over(session("Exact", optimizer=RULES["sgd"]), 2, "colocated"))


@pytest.mark.slow
def test_servers_beside_workers_equal_one_device(workers, alone):
    """Slow: they are processes that the workers start, and import torch."""
    kept = workers(2, train_colocated)[0]
    assert_equal(kept.parameters, alone("sgd"), "colocated")


def test_a_stream_is_refused_when_it_is_checked():
    sentence = (
        "is a stream, which only goes forward, and servers hand the samples of a lost or slow worker to others, "
        "which have passed them; accepted: samples that are read by index"
    )
    with pytest.raises(SettingError, match=sentence):
        check_session(over(session("Exact", source={"name": "Streamed"}), 2, 1))


@pytest.mark.slow
def test_what_servers_refuse_is_told_in_their_words_though_no_worker_has_spoken(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    waiting = {"name": "Streamed", "after": str(tmp_path / "never")}
    with pytest.raises(BadInput, match=r"^data\.source: .* is a stream.*\n.* was removed"):
        start(over(session("Exact", source=waiting), 2, 1), NoWatcher())
    assert not list(tmp_path.glob("runs/*"))
