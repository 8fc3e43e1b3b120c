"""Gradients that travel encoded, as factors, or a step behind; ways that change between steps."""

from __future__ import annotations

import re
from dataclasses import replace
from statistics import mean, median
from typing import Any

import pytest
import torch
from torch import Tensor

from train._training import Quick, Trained, looked_at, made, session, started
from train._wide import SGD, assert_resumed_equals_whole, quickly, sent, stop_and_resume, wide
from volary.codec import ROOM as CODECS
from volary.errors import SettingError
from volary.exchange.gradients import row_blocks
from volary.session import Session, SessionError
from volary.train.loop import train

LOSSY = [name for name in CODECS.names() if not CODECS.load(name).lossless]
ROUNDING = 1e-11  # of 64 bits, over 20 steps


@pytest.mark.slow  # tests/exchange/test_every_keeper.py hands residuals on; a warm-up below resumes with one of them
def test_a_run_resumes_bit_for_bit_with_every_codec_and_its_bytes_are_fewer(workers):
    sessions = {name: wide(codec=name) for name in LOSSY}
    everyone = workers(2, stop_and_resume, {**sessions, "none": wide()})
    assert_resumed_equals_whole(everyone)
    dense = sent(everyone[0]["none"][0])
    for name in LOSSY:
        # of whole runs, which begin with the same bytes: a step's may leave with the next one
        saved = sum(dense) - sum(sent(everyone[0][name][0]))
        assert saved > len(dense) * median(dense) / 3, name


@pytest.mark.slow  # tests/exchange has warm-ups
def test_a_warm_up_travels_as_it_is_and_ends_between_two_steps(workers):
    one = wide(codec={"name": "onebit", "warm_up_samples": 50})
    everyone = workers(2, stop_and_resume, {"warm": one})
    assert_resumed_equals_whole(everyone)
    whole, *_ = everyone[0]["warm"]
    assert len(whole.events("exchange")) == 2
    assert mean(sent(whole)[6:]) < 0.5 * mean(sent(whole)[:6])


def with_small_layers(rank: int, world_size: int, sessions: dict[str, Session]) -> dict[str, list[Trained]]:
    row_blocks.LARGE_BYTES = 2**13
    return stop_and_resume(rank, world_size, sessions)


@pytest.mark.parametrize("world_size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_factors_equal_one_device_and_a_run_resumes_with_the_ways_that_were_chosen(workers, world_size, tmp_path):
    one = wide(bits=64, codec="factors")
    everyone = workers(world_size, with_small_layers, {"factors": one})
    assert_resumed_equals_whole(everyone)
    whole, _, resumed = everyone[0]["factors"]
    (chosen,) = whole.events("ways")
    ways = {layer: way for layer, way, *_ in chosen["table"]}
    assert ways == {
        "into.weight": "exact", "into.bias": "exact", "large.weight": "factors", "back.weight": "factors",
        "out.weight": "exact", "out.bias": "exact",
    }  # fmt: skip
    assert resumed.events("ways") == [], "what was chosen is in the checkpoint"
    before = sum(sent(whole)[:4]) - median(sent(whole))  # of three steps: a step's may leave with the next one
    assert mean(sent(whole)[-6:]) < 0.6 * before / 3
    alone = quickly(0, 1, one, str(tmp_path / "alone"))
    torch.testing.assert_close(whole.parameters, alone.parameters, rtol=0, atol=ROUNDING)


BY_LAYER = {"large*": {"name": "onebit", "warm_up_samples": 50}, "back*": "factors", "into*": "none"}


@pytest.mark.slow  # test_any_strategy.py resumes runs with codecs by layer
def test_each_layer_travels_by_its_pattern_s_codec_and_a_run_resumes_bit_for_bit(workers):
    everyone = workers(2, with_small_layers, {"by layer": wide(codec=BY_LAYER), "none": wide()})
    assert_resumed_equals_whole(everyone)
    whole, _, resumed = everyone[0]["by layer"]
    (chosen,) = whole.events("ways")
    assert {layer: way for layer, way, *_ in chosen["table"]} == {
        "into.weight": "exact", "into.bias": "exact", "large.weight": "onebit", "large.bias": "exact",
        "back.weight": "factors", "out.weight": "exact", "out.bias": "exact",
    }  # fmt: skip
    assert len(whole.events("exchange")) == 3, "at first, once links are known, and once the warm-up is over"
    assert resumed.events("ways") == []
    assert mean(sent(whole)[-4:]) < 0.3 * mean(sent(everyone[0]["none"][0])[-4:])


def a_step_behind(rank: int, world_size: int, sessions: dict[str, Session]) -> dict[str, list[Trained]]:
    return stop_and_resume(rank, world_size, sessions)


def late(one: Session, pauses: tuple[int, ...]) -> dict[str, Tensor]:
    """The result of training on one device if each gradient is applied a step late; all are applied at pauses."""
    it = made(0, 1, replace(one, strategy=replace(one.strategy, workers=1)), "late")
    rule = torch.optim.SGD(it.flow.module.parameters(), **{key: SGD[key] for key in ("lr", "momentum")})
    waiting: list[Tensor] | None = None
    for step, batch in enumerate(it.coordinator.rank.data.feed, start=1):
        loss = it.flow(batch.inputs, batch.targets)
        gradients = torch.autograd.grad(loss, list(it.flow.module.parameters()))
        for now in (waiting, list(gradients) if step in pauses else None):
            if now is not None:
                for parameter, gradient in zip(it.flow.module.parameters(), now, strict=True):
                    parameter.grad = gradient
                rule.step()
        waiting = None if step in pauses else list(gradients)
    return {name: parameter.detach() for name, parameter in it.flow.module.named_parameters()}


@pytest.mark.slow  # test_positions.py has a step behind
def test_a_step_behind_each_gradient_is_applied_a_step_late_and_none_is_lost(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exact = wide(bits=64, exchange={"behind": True})
    sessions = {"exact": exact, "onebit": wide(codec="onebit", exchange={"behind": True})}
    everyone = workers(2, a_step_behind, sessions)
    for found in everyone:
        expected = late(exact, pauses=(3, 6, 9, 12))
        torch.testing.assert_close(found["exact"][0].parameters, expected, rtol=0, atol=ROUNDING)
        for parameter, values in found["onebit"][0].parameters.items():
            assert torch.equal(values, everyone[0]["onebit"][0].parameters[parameter])


def residuals_of(it: Any) -> dict[str, Tensor]:
    return {
        name: kinds["residual"].clone()
        for name, kinds in it.coordinator.residuals.rank_state().items()
        if "residual" in kinds
    }


def residuals_after(rank: int, world_size: int, one: Session, until: int) -> dict[str, Tensor]:
    it = made(rank, world_size, one, "fewer", disk=Quick(), until=lambda step: step == until)
    it.coordinator.saver.resume()
    before = residuals_of(it)
    with started(it):
        train(it)
    return before if until > 6 else residuals_of(it)


def total(everyone: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([residuals[name] for residuals in everyone]).sum(0) for name in everyone[0]}


@pytest.mark.slow  # tests/exchange/test_every_keeper.py hands residuals on
def test_residuals_of_ranks_that_are_gone_go_to_those_that_are_left(workers, monkeypatch):
    three = workers(3, residuals_after, wide(codec="onebit"), 6)
    (workers.folder / "2").mkdir()
    (workers.folder / "1" / "fewer").rename(workers.folder / "2" / "fewer")
    (workers.folder / "2").rename(workers.folder / "kept")
    monkeypatch.setattr(workers, "calls", 1)
    two = workers(2, residuals_elsewhere, str(workers.folder / "kept" / "fewer"), wide(codec="onebit"))
    left = total(three)
    assert set(left) == {"large.weight", "back.weight"}
    assert all(values.abs().max() > 0 for values in left.values())
    torch.testing.assert_close(total(two), left)


def residuals_elsewhere(rank: int, world_size: int, folder: str, one: Session) -> dict[str, Tensor]:
    it = made(rank, world_size, one, folder, disk=Quick())
    assert it.coordinator.saver.resume() is not None
    with started(it):
        return residuals_of(it)


def swap(rank: int, world_size: int, codecs: list[str]) -> tuple[list[dict[str, Tensor]], Trained]:
    """Another codec after every third step; the residuals when one was put down, and when the next took it up."""
    residuals = []
    for number, name in enumerate(codecs):
        it = made(
            rank, world_size, wide(codec=name), "swapped", disk=Quick(), until=lambda step, n=number: step == 3 * n + 3
        )
        it.coordinator.saver.resume()
        residuals.append(residuals_of(it))
        with started(it):
            train(it)
        residuals.append(residuals_of(it))
    return residuals, looked_at(it)


@pytest.mark.slow  # all pairs; the warm-up changes codecs, too
def test_any_two_codecs_can_be_swapped_between_steps_and_no_residual_is_lost(workers):
    codecs = ["onebit", "topk", "none", "powersgd", "threshold"]
    (residuals, first), (_, second) = workers(2, swap, codecs)
    for name, values in first.parameters.items():
        assert torch.equal(values, second.parameters[name])
    for put_down, taken_up in zip(residuals[1:-1:2], residuals[2::2], strict=True):
        assert set(put_down) == {"large.weight", "back.weight"}
        for name, values in put_down.items():
            assert torch.equal(values, taken_up[name])


REFUSED = {
    "codec: allow: unknown name 'onebiit'; did you mean 'onebit'": {"codec": {"name": "auto", "allow": ["onebiit"]}},
    "allow: 'factors' chooses itself; accepted: codecs that encode": {"codec": {"name": "auto", "allow": ["factors"]}},
    "with exchange.route=shared workers add in shared memory": {
        "workers": 2,
        "exchange": {"name": "allreduce", "route": "shared"},
        "codec": "fp16",
    },
    "codec.neighbours: is 0; accepted: 1 or more": {"codec": {"name": "factors", "neighbours": 0}},
    "is a codec now; write codec: {name: factors, neighbours: 2} and exchange: {name: allreduce, route: torch}": {
        "exchange": {"name": "factors", "neighbours": 2, "route": "torch"}
    },
    "is a codec now; write codec: auto and exchange: {name: allreduce, route: torch}": {
        "exchange": {"name": "auto", "route": "torch"}
    },
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_does_not_go_together_is_refused_with_the_nearest_that_does(sentence):
    with pytest.raises(SessionError, match=re.escape(sentence)):
        session("Wide", strategy=REFUSED[sentence])


def test_what_needs_all_gradients_is_not_a_step_behind():
    behind = {"name": "allreduce", "behind": True}
    with pytest.raises(SettingError) as refused:
        session("Wide", train={"steps": 3, "clip_norm": 1.0}, strategy={"workers": 2, "exchange": behind})
    assert str(refused.value).endswith(
        "train.clip_norm is 1, and with exchange.behind=true gradients are applied chunk by chunk as they come; "
        "accepted: train.clip_value, or no clip_norm"
    )
