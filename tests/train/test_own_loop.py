"""A loop of a user's own on several workers: the worker's side, and equality with one worker."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from _workers import alone, joined
from train import _own_loops
from train._behaviours.several_models import gan_in_two_calls, two_optimizers_of_one_model
from train._own_workers import worker_in
from train._training import OVERLAPPED, session, trained
from train._user_data import points
from volary.data.sharing.among import Among
from volary.data.sharing.shared import shared
from volary.errors import NotSaved, RanksDiffer, SettingError, Stopped
from volary.exchange.gradients import row_blocks
from volary.session.script import Script
from volary.sharding.samples import UNDIVIDED, SampleShare
from volary.train.model import build_model
from volary.train.own.saving import plain_values
from volary.train.own.startup import run_script
from volary.train.own.worker import Worker
from volary.train.recording.recorder import Recorder
from volary.train.state.seeds import seed_all

ROUNDING = 1e-12
LOOPS = Path(_own_loops.__file__)
STEPS = {"plain": 24, "idling": 28, "accumulating": 12, "clipping": 24, "scaling": 24, "zeroing": 24}


def call(
    function: Callable[[Worker], Any],
    rank: int,
    world_size: int,
    attempt: int,
    ending: bool = False,
    strategy: dict[str, Any] | None = None,
    **settings: Any,
) -> Any:
    """Calls the function as a worker's process does, without the process."""
    group = joined(attempt) if world_size > 1 else alone()
    script = Script(function=f"{LOOPS}:plain", strategy={"workers": world_size, **(strategy or {})}, **settings)
    recorder = Recorder(rank)
    pulse: Any = SimpleNamespace(asked_to_end=ending)
    seed_all(1)
    worker = worker_in(script, group, recorder, pulse)
    try:
        return function(worker), recorder
    finally:
        worker.close()


def call_all(rank: int, world_size: int, strategy: dict[str, Any]) -> dict[str, Any]:
    row_blocks.LARGE_BYTES = 0  # of this worker's process: all layers may travel as factors
    found = {}
    for attempt, name in enumerate(STEPS):
        value, recorder = call(getattr(_own_loops, name), rank, world_size, attempt, strategy=strategy)
        found[name] = value, list(recorder.rows)
        chosen = [one for one in recorder.events if one.get("event") == "ways"]
        assert [one["step"] for one in chosen] == [0] * (strategy.get("codec") == "factors" and rank == 0), name
    return found


@pytest.mark.parametrize(
    ("world_size", "strategy"),
    [(2, {}), pytest.param(3, {}, marks=pytest.mark.slow), (2, OVERLAPPED), (2, {"codec": "factors"})],
)
def test_n_workers_equal_one_on_the_same_global_batches_over_more_than_20_steps(workers, world_size, strategy):
    (alone,) = workers(1, call_all, {})
    everyone = workers(world_size, call_all, strategy)
    for found in everyone:
        for name, steps in STEPS.items():
            (value, rows), (expected, expected_rows) = found[name], alone[name]
            assert len(rows) == len(expected_rows) == steps
            for parameter, tensor in expected["state"].items():
                torch.testing.assert_close(
                    value["state"][parameter],
                    tensor,
                    rtol=0,
                    atol=ROUNDING if name != "scaling" else 1e-9,
                    msg=lambda text, where=(name, parameter): f"{where}: {text}",
                )
            # what a user's code sees between backward and step is the agreed gradient
            assert value["norms"] == pytest.approx(expected["norms"], abs=1e-12)
    # a worker without a sample goes through the loop with one that it had before, whose gradients count nothing
    value, rows = everyone[-1]["idling"]
    assert [row.samples for row in rows][6::7] == [0] * 4
    assert value["seen"][6::7] == [(0, True)] * 4


PARTED = r"workers made different calls: rank 0 worker\.mean of 3 values, rank 1 worker\.gather; all workers must make"
PLACES = (
    "not at the same place of their loops: rank 0 is in step {} with batch {} of worker.feed, "
    "rank 1 is in step {} with batch {} of worker.feed; accepted: each takes as many batches as the others"
)
APART = {  # each worker says it where gradients of different steps would have been added up
    _own_loops.passing_once_more: (3, 3, 4, 4),
    _own_loops.leaving_a_batch_out: (3, 3, 3, 4),
}


def do_odd_things(rank: int, world_size: int) -> Any:
    said, _ = call(_own_loops.asking_too_much, rank, world_size, 0, strategy=GOSSIP[0])
    left, _ = call(_own_loops.leaving_early, rank, world_size, 1)
    with pytest.raises(Stopped):
        call(_own_loops.stopping, rank, world_size, 3, ending=rank == 1)
    with pytest.raises(RanksDiffer, match=PARTED):
        call(_own_loops.parting, rank, world_size, 4)
    for attempt, (loop, places) in enumerate(APART.items(), 5):
        with pytest.raises(RanksDiffer, match=PLACES.format(*places)):
            call(loop, rank, world_size, attempt)
    return said, left, Path(f"saved-{rank}").read_text()


def test_what_cannot_be_is_refused_and_the_wish_of_one_ends_all_after_the_same_step(workers):
    everyone = workers(2, do_odd_things)
    for said, (steps, firsts), stopped_after in everyone:
        assert said == (
            "SettingError: batch_size is 1, and with workers whose parameters differ each learns from samples of its "
            "own; accepted: 2 or more, a sample a worker"
        )
        assert steps == 6
        assert firsts[0] != firsts[1], "a `for` that follows a `break` is the next epoch"
        assert stopped_after == "1"


def test_two_feeds_may_be_read_at_the_same_time_and_neither_loses_or_doubles_a_sample():
    (first, second), _ = call(_own_loops.two_feeds, 0, 1, 0)
    for found, count in ((first, 23), (second, 21)):
        numbers = sorted(_own_loops.points(count).tensors[0][:, 0].tolist())
        assert sorted(found[:count]) == sorted(found[count:]) == numbers


def test_phases_of_an_own_loop_are_told_apart():
    _, recorder = call(_own_loops.plain, 0, 1, 0)
    row = recorder.rows[-1]
    assert row.step == 24
    assert row.epoch == pytest.approx(4.0)
    for phase in ("data", "forward", "backward", "optimizer"):
        assert getattr(row, f"{phase}_s") > 0


def test_what_a_function_returned_is_written_as_soon_as_it_can_be_and_else_the_run_fails(tmp_path, monkeypatch):
    path = tmp_path / "results" / "rank-0.pt"
    waited: list[float] = []
    monkeypatch.setattr(run_script.time, "sleep", waited.append)
    with pytest.raises(
        NotSaved, match=r"what train\(worker\) returned could not be written: .*rank-0.pt: No such file"
    ):
        run_script._keep(path, b"result")
    assert waited == [1.0, 2.0, 4.0]
    monkeypatch.setattr(run_script.time, "sleep", lambda _: path.parent.mkdir())
    run_script._keep(path, b"result")
    assert path.read_bytes() == b"result"


def normalise(rank: int, world_size: int) -> Any:
    return call(_own_loops.normalising, rank, world_size, 90)[0]


def test_all_ranks_have_the_buffers_of_the_first(workers):
    first, second = workers(2, normalise)
    assert first == second
    assert any(first)


def test_a_lazy_layer_is_refused_in_a_sentence_that_says_what_is_accepted():
    lazy, _ = call(_own_loops.refused, 0, 1, 91)
    assert lazy.startswith(
        "BadInput: worker.distribute: weight has no shape yet; accepted: a model that was called once"
    )


def test_numpy_comes_back_and_what_cannot_is_named_by_its_key_and_nothing_else_is_lost():
    value = {
        "accuracy": np.float32(0.5),
        "curve": np.arange(3.0),
        "model": {"state": network_state(), "itself": _own_loops.network()},
        "names": ["a", (np.int64(3), object())],
    }
    found, refused = plain_values.keepable(value)
    assert (found["accuracy"], found["curve"].tolist(), found["names"]) == (0.5, [0.0, 1.0, 2.0], ["a", (3, None)])
    assert type(found["accuracy"]) is float
    assert set(found["model"]["state"]) == set(network_state())
    assert found["model"]["itself"] is None
    assert refused == {"['model']['itself']": "Sequential", "['names'][1][1]": "object"}
    assert plain_values.keepable(np.float64(2.0)) == (2.0, {})
    assert plain_values.keepable(object()) == (None, {"": "object"})


def network_state() -> dict[str, torch.Tensor]:
    return _own_loops.network().state_dict()


def call_locally(rank: int, world_size: int, behind: bool) -> dict[str, Any]:
    strategy = {"consistency": {"name": "local", "period": 4}, "exchange": {"name": "allreduce", "behind": behind}}
    value, recorder = call(_own_loops.plain, rank, world_size, 0, strategy=strategy)
    return {"state": value["state"], "rows": list(recorder.rows)}


def by_hand(workers: int, period: int, *, behind: bool = False) -> dict[str, torch.Tensor]:
    """`plain`, of all workers in turn: after each period, and at an epoch's end, the mean by samples is taken.

    behind: of a period within an epoch it is added after the next one, to what that has changed.
    """
    fed = shared(_own_loops.points(), 4, None, Among(UNDIVIDED))
    models = [_own_loops.network() for _ in range(workers)]
    rules = [torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9) for model in models]
    equal = [own.detach().clone() for own in models[0].parameters()]
    begun = [equal] * workers
    counts, steps = [0] * workers, 0
    for batch in chain.from_iterable(fed.epoch(epoch) for epoch in range(4)):
        for rank, (model, rule) in enumerate(zip(models, rules, strict=True)):
            share = SampleShare(rank, workers).of(batch.total, 0)
            inputs, targets = (part[share] for part in batch.batch)
            rule.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), targets, reduction="sum")
            (loss / max(1, len(inputs))).backward()
            rule.step()
            counts[rank] += len(inputs)
        steps += 1
        if steps != period and not batch.ends_epoch:
            continue
        with torch.no_grad():
            now = [[own.clone() for own in model.parameters()] for model in models]
            for place, one in enumerate(equal):
                changed = [own[place] - start[place] for own, start in zip(now, begun, strict=True)]
                equal[place] = one + sum(n / sum(counts) * by for n, by in zip(counts, changed, strict=True))
            begun = now
            if not behind or batch.ends_epoch:
                begun = [list(equal)] * workers
                for model in models:
                    for own, one in zip(model.parameters(), equal, strict=True):
                        own.copy_(one)
        counts, steps = [0] * workers, 0
    return models[0].state_dict()


@pytest.mark.parametrize("behind", [False, True])
def test_local_steps_in_a_loop_of_ones_own_are_what_one_does_by_hand(workers, behind):
    expected = by_hand(2, 4, behind=behind)
    for found in workers(2, call_locally, behind):
        for name, value in expected.items():
            torch.testing.assert_close(found["state"][name], value, rtol=0, atol=ROUNDING, msg=name)
        assert len(found["rows"]) == 24


def learn_locally_with_several(rank: int, world_size: int) -> Any:
    plain, found = partial(gan_in_two_calls, momentum=0.0), []
    for attempt, (loop, period) in enumerate([(plain, 1), (gan_in_two_calls, 4)]):
        value, _ = call(loop, rank, world_size, attempt, strategy={"consistency": {"name": "local", "period": period}})
        found.append({**value["generator"], **{f"judge.{name}": one for name, one in value["judge"].items()}})
    if world_size > 1:
        with pytest.raises(SettingError, match="a second Adam updates a model in the same step"):
            call(two_optimizers_of_one_model, rank, world_size, 2, strategy={"consistency": "local"})
    return found


def test_with_local_steps_each_of_several_models_becomes_its_mean_and_a_model_has_one_optimiser(workers):
    ((expected, _),) = workers(1, learn_locally_with_several)
    (by_step, by_period), *others = workers(2, learn_locally_with_several)
    for name, value in expected.items():
        torch.testing.assert_close(by_step[name], value, rtol=0, atol=ROUNDING, msg=name)
        assert all(torch.equal(by_period[name], other[1][name]) for other in others), name


GOSSIP: list[dict[str, Any]] = [
    {"consistency": "gossip"},
    {"consistency": {"name": "gossip", "graph": "ring"}},
    {"consistency": "gossip", "exchange": {"name": "allreduce", "behind": True}},
]


def run_to_its_end(worker: Worker, model: torch.nn.Module) -> None:
    _own_loops.as_a_session(worker, model, points("train", 40))
    worker.finish()


def own_and_session(rank: int, world_size: int) -> Any:
    pairs = []
    for number, strategy in enumerate([{}, *GOSSIP]):
        of = session("Wide", shuffle=False, source={"name": "points", "samples": 40}, strategy=strategy)
        ours = trained(rank, world_size, of, f"session-{number}")
        seed_all(of.train.seed)
        model = build_model(of, torch.device("cpu")).module
        call(partial(run_to_its_end, model=model), rank, world_size, 90 + number, strategy=strategy)
        pairs.append((ours.parameters, {name: one.detach() for name, one in model.named_parameters()}))
    (drawn, length), _ = call(_own_loops.drawing, rank, world_size, 96)
    return pairs, drawn, length


def test_alone_a_loop_of_ones_own_and_a_sessions_are_one_thing():
    of = session("Wide", shuffle=False, source={"name": "points", "samples": 41})
    ours = trained(0, 1, of)
    seed_all(of.train.seed)
    model = build_model(of, torch.device("cpu")).module
    own, _ = call(lambda worker: _own_loops.as_a_session(worker, model, points("train", 41)), 0, 1, 0)
    assert ours.parameters.keys() == own.keys()
    assert all(torch.equal(ours.parameters[name], own[name]) for name in own), "bit for bit"


def test_a_loop_of_ones_own_and_a_sessions_are_one_thing_and_all_follow_what_rank_0_draws(workers):
    everyone = workers(2, own_and_session)
    for pairs, _, length in everyone:
        assert len(pairs) == 4
        for number, (ours, own) in enumerate(pairs):
            assert ours.keys() == own.keys()
            assert all(torch.equal(ours[name], own[name]) for name in own), f"strategy {number}: bit for bit"
        assert length == 23
    drawn = torch.Generator().manual_seed(0)
    (_, first, _), (_, second, _) = everyone
    for epoch in range(2):
        order = torch.randperm(23, generator=drawn).tolist()
        for step in range(6):
            batch = order[4 * step : 4 * step + 4]
            mine, others = first[6 * epoch + step], second[6 * epoch + step]
            assert (mine, others) == ((batch[::2], batch[1::2]) if step < 5 else (batch, []))


def differ(rank: int, world_size: int) -> str:
    with pytest.raises(RanksDiffer) as found:
        call(_own_loops.skewing, rank, world_size, 0, compare_replicas="2 steps")
    call(_own_loops.skewing, rank, world_size, 1, compare_replicas="never")
    return str(found.value)


def test_replicas_of_an_own_loop_are_compared_as_often_as_is_said(workers):
    for said in workers(2, differ):
        assert (
            said
            == "replicas differ at step 4: parameter 2.bias is another on rank 0 than on rank 1; they should be equal"
        )


def step_with_own_settings(rank: int, world_size: int) -> list[str]:
    """The message where a setting is another on each worker from the third step on."""
    found = []
    for attempt, (name, value, early) in enumerate([("lr", 0.1 + rank, False), ("betas", (0.9, 0.5 + rank / 4), True)]):

        def loop(worker: Worker, name: str = name, value: Any = value, early: bool = early) -> None:
            model = _own_loops.network()
            optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
            model, optimizer = worker.distribute(model, optimizer, early_update=early)
            for step, (inputs, labels) in enumerate(worker.feed(_own_loops.points(), batch_size=4), 1):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(inputs), labels).backward()
                if step == 3:
                    optimizer.param_groups[0][name] = value
                optimizer.step()

        with pytest.raises(RanksDiffer) as told:
            call(loop, rank, world_size, attempt, strategy=OVERLAPPED)
        found.append(str(told.value))
    return found


def test_settings_of_an_optimiser_that_differ_are_named_with_the_next_gradients(workers):
    for said in workers(2, step_with_own_settings):
        assert said == [
            "lr of the optimiser is 0.1 on rank 0, 1.1 on rank 1 in step 3; accepted: the same on all workers",
            "betas of the optimiser is [0.9, 0.5] on rank 0, [0.9, 0.75] on rank 1 in step 3; accepted: the same on "
            "all workers",
        ]


def warm_up(rank: int, world_size: int) -> list[int]:
    strategy = {**OVERLAPPED, "codec": {"name": "onebit", "warm_up_samples": 16}}
    with pytest.raises(SettingError, match="does not get its batches from"):
        call(_own_loops.warming_unfed, rank, world_size, 0, strategy=strategy)
    _, recorder = call(_own_loops.warming, rank, world_size, 1, strategy=strategy)
    return [row.sent_bytes for row in recorder.rows]


def test_a_codecs_warm_up_counts_the_samples_that_an_own_loop_is_fed(workers):
    for first, second, third, fourth in workers(2, warm_up):
        assert first == second > 4 * third == 4 * fourth


def bytes_of_changed_models(rank: int, world_size: int) -> list[tuple[int, int]]:
    _, recorder = call(_own_loops.changing, rank, world_size, 0, strategy=OVERLAPPED)
    return [(row.sent_bytes, row.received_bytes) for row in recorder.rows]


def test_a_model_that_is_distributed_anew_sends_in_each_step_what_it_sends(workers):
    for first, second, third, *rest in workers(2, bytes_of_changed_models):
        assert min(second) > 0
        assert third >= second <= first  # first values travel, too
        assert len(rest) > 2
        assert all(one >= second for one in rest)


def test_a_step_that_raises_is_none_and_those_after_it_are_counted():
    _, recorder = call(_own_loops.raising, 0, 1, 98)
    assert [row.step for row in recorder.rows] == [1, 2, 3, 4]


def find_out(rank: int, world_size: int) -> Any:
    return call(_own_loops.finding_out, rank, world_size, 97)[0]


def test_what_workers_find_out_together_is_what_one_finds_on_all_samples(workers):
    (alone,) = workers(1, find_out)
    for found in workers(2, find_out):
        assert found["loss"] == pytest.approx(alone["loss"], abs=ROUNDING)
        assert found["held out"] == pytest.approx(alone["held out"], abs=ROUNDING)
        assert found["alone"] == pytest.approx(alone["alone"], abs=ROUNDING)
        nothing = found["metrics"].pop("of nothing")
        assert nothing != nothing, "NaN"
        assert found["metrics"] == {
            name: pytest.approx(value, abs=ROUNDING) for name, value in alone["metrics"].items() if name != "of nothing"
        }
        assert sum(found["metrics"]["confusion"].values()) == 6, "each sample once, but the one that is ignored"
