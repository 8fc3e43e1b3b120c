"""Gradients whose way is chosen: before the first step, compared in truth, and anew when links change."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from statistics import mean
from typing import Any

import pytest
import torch

from train._training import Trained
from train._user_data import points
from train._user_networks import Wide
from train._wide import assert_resumed_equals_whole, quickly, sent, stop_and_resume, wide
from train.test_own_loop import call
from volary.exchange.choice.costs import LinkCosts, WorkTimes
from volary.exchange.gradients import row_blocks
from volary.exchange.overlap.known_links import KnownLinks
from volary.session import Session
from volary.train.strategies import choosing
from volary.train.strategies.comparison import EACH, PAIR, SETTLING_STEPS, Comparison
from volary.train.strategies.contribution import ContributionBuffers

SLOW, FAST = 1e5, 1e12  # bytes per second
LOSSY = {"name": "auto", "allow": ["onebit"]}
LARGE = {"large.weight", "back.weight"}


def with_figures(bytes_per_s: float) -> None:
    """In this worker's process, links carry so much, and work takes what it does nowhere."""

    def costs(self: KnownLinks, *, levels: bool) -> LinkCosts:
        return LinkCosts(self._links.size, 1, bytes_per_s, levels=False)

    KnownLinks.costs = costs  # type: ignore[method-assign]
    choosing.work_times = lambda codecs: WorkTimes(dict.fromkeys(codecs, 1e-9), 1e-11, 1e-10)


def ways(event: dict[str, Any]) -> dict[str, str]:
    return {layer: way for layer, way, *_ in event["table"]}


def on_slow_links(rank: int, world_size: int, sessions: dict[str, Session]) -> tuple[dict[str, list[Trained]], Trained]:
    """Durations of steps are made up, too: on a busy machine the second table may be worth a try, in one run and not in
    another.
    """
    with_figures(SLOW)
    Comparison.add = lambda self, _: self.step_s.append(self.expected_s[self.now])  # type: ignore[method-assign]
    in_memory = wide(codec=LOSSY, steps=2, exchange={"route": "auto"})
    return stop_and_resume(rank, world_size, sessions), quickly(rank, world_size, in_memory, "shared")


@pytest.mark.slow  # the one below resumes amid a comparison
def test_a_slow_link_has_no_step_as_it_is_and_a_run_resumes_bit_for_bit(workers):
    both = {"auto": wide(codec=LOSSY), "onebit": wide(codec="onebit")}
    everyone, in_memory = zip(*workers(2, on_slow_links, both), strict=True)
    assert_resumed_equals_whole(list(everyone))
    whole, _, resumed = everyone[0]["auto"]
    (chosen,) = whole.events("ways")
    assert {layer for layer, way in ways(chosen).items() if way == "onebit"} == LARGE
    assert [one["step"] for one in whole.said if one.get("event") == "ways"] == [0]
    alone = everyone[0]["onebit"][0]
    assert whole.losses == alone.losses, "as if the codec had been set"
    assert sent(whole)[0] < 1.1 * sent(alone)[0] and sum(sent(whole)) < 1.1 * sum(sent(alone))
    assert resumed.events("ways") == whole.events("compared") == [], "what was chosen is in the checkpoint"
    assert in_memory[0].events("ways") == [] and sum(sent(in_memory[0])) == 0, "where nothing travels is no choice"


def own_loop(worker: Any) -> None:
    """Two steps of `Wide` on as many samples as the session has in them."""
    model = Wide(bits=32)
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.05))
    for inputs, targets in worker.feed(points("train", 20), batch_size=10):
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()


def in_both_loops(rank: int, world_size: int) -> list[list[dict[str, Any]]]:
    with_figures(SLOW)
    row_blocks.LARGE_BYTES = 2**13
    strategy = {"exchange": {"name": "allreduce", "route": "torch"}, "codec": LOSSY}
    _, own = call(own_loop, rank, world_size, 99, strategy=strategy)
    given = quickly(rank, world_size, wide(codec=LOSSY, steps=2), "given")
    return [[one for one in events if one.get("event") == "ways"] for events in (own.events, given.said)]


def test_a_loop_of_one_s_own_has_the_same_choice_before_its_first_step(workers):
    (own,), (given,) = workers(2, in_both_loops)[0]
    assert own["step"] == given["step"] == 0
    first, second = ([row[:3] for row in one["data"]["table"]] for one in (own, given))
    assert first == second
    assert {way for _, way, _ in first} == {"onebit", "exact"}


def in_fewer_bits(rank: int, world_size: int) -> list[Trained]:
    """Links so slow that factors would be chosen, and layers that hand over none under autocast."""
    with_figures(SLOW)
    row_blocks.LARGE_BYTES = 2**13
    given = (wide(codec="auto", steps=2), wide(codec="none", steps=2))
    fewer = [replace(one, train=replace(one.train, precision="bf16")) for one in given]
    return [quickly(rank, world_size, one, str(number)) for number, one in enumerate((given[0], *fewer))]


def test_under_autocast_no_layer_is_chosen_to_travel_as_factors(workers):
    whole, auto, none = workers(2, in_fewer_bits)[0]
    assert "factors" in ways(whole.events("ways")[0]).values(), "in fp32 they are"
    assert auto.events("ways") == [] or set(ways(auto.events("ways")[0]).values()) == {"exact"}
    assert auto.losses == none.losses


def compared(rank: int, world_size: int, one: Session) -> list[dict[str, list[Trained]]]:
    """The duration of a step is made up: the test's choice must not depend on this machine's load."""
    with_figures(FAST)
    found = []
    for better in (0, 1):
        rival_s = 0.5 if better else 1.5
        Comparison.counted = lambda _, rival_s=rival_s: ([1.0] * 5, [rival_s] * 5)  # type: ignore[method-assign]
        found.append(stop_and_resume(rank, world_size, {f"better {better}": one}, after=EACH + 2))
    return found


@pytest.mark.slow  # tests/exchange/test_choices.py compares them
def test_the_two_best_are_compared_over_some_steps_the_better_stays_and_a_run_resumes_amid_them(workers):
    found = workers(2, compared, wide(codec=LOSSY, steps=2 * EACH + 4))
    for better, everyone in enumerate(zip(*found, strict=True)):
        assert_resumed_equals_whole(list(everyone))
        whole, _, resumed = everyone[0][f"better {better}"]
        first_ways, *others = map(ways, whole.events("ways"))
        assert set(first_ways.values()) == {"exact"}
        assert [{layer for layer, way in one.items() if way == "onebit"} for one in others] == [LARGE] * better
        assert [ways(one) for one in resumed.events("ways")] == others, "of what is taken the table is told"
        assert [one["stays"] for one in whole.events("compared") + resumed.events("compared")] == [better] * 2
        turns = sent(whole)[2:EACH], sent(whole)[EACH + 1 : 2 * EACH], sent(whole)[2 * EACH + 1 :]
        first, rival, after = map(mean, turns)
        assert rival < 0.6 * first
        assert (after < 0.6 * first) is bool(better)


def on_changing_links(rank: int, world_size: int, one: Session) -> Trained:
    """Measurements of the links are made up: they become slow in step 9."""
    with_figures(FAST)
    choosing.FOLLOW_STEPS = 3
    choosing.worth_comparing = lambda ranked, _: ranked[:1]
    ContributionBuffers.sent_bytes_per_s = lambda self: FAST if self._recorder.step < 9 else SLOW  # type: ignore[method-assign]
    return quickly(rank, world_size, one, "changing")


def with_disturbed_steps(rank: int, world_size: int, one: Session) -> Trained:
    """Bytes sent are made up: few in the first steps after each change. The first table stays."""
    with_figures(FAST)
    Comparison.counted = lambda _: ([1.0] * 5, [1.5] * 5)  # type: ignore[method-assign]
    began: weakref.WeakKeyDictionary[ContributionBuffers[Any], int] = weakref.WeakKeyDictionary()
    make = ContributionBuffers.__init__

    def making(self: ContributionBuffers[Any], *settings: Any, **more: Any) -> None:
        make(self, *settings, **more)
        began[self] = self._recorder.step

    ContributionBuffers.__init__ = making  # type: ignore[method-assign]
    ContributionBuffers.sent_bytes_per_s = (  # type: ignore[method-assign]
        lambda self: SLOW if self._recorder.step < began[self] + SETTLING_STEPS + 2 else FAST
    )
    return quickly(rank, world_size, one, "disturbed")


@pytest.mark.slow  # tests/exchange has the choice
def test_steps_that_a_change_disturbs_do_not_make_links_other_links(workers):
    steps = PAIR + 2 * choosing.FOLLOW_STEPS + 1
    first, *_ = workers(2, with_disturbed_steps, wide(steps=steps, codec=LOSSY))
    assert [one["stays"] for one in first.events("compared")] == [0]


def that_are_left(rank: int, world_size: int, one: Session) -> list[int]:
    """How many strategies' buffers there are, each time that links are looked at; nothing but the run collects them."""
    gc.disable()
    made: list[weakref.ref[ContributionBuffers[Any]]] = []
    make, found = ContributionBuffers.__init__, list[int]()

    def making(self: ContributionBuffers[Any], *settings: Any, **more: Any) -> None:
        made.append(weakref.ref(self))
        make(self, *settings, **more)

    ContributionBuffers.__init__ = making  # type: ignore[method-assign]
    links = choosing.Chooser._others

    def looking(self: choosing.Chooser, sent_bytes_per_s: float | None) -> bool:
        found.append(sum(buffers() is not None for buffers in made))
        return links(self, sent_bytes_per_s)

    choosing.Chooser._others = looking  # type: ignore[method-assign]
    on_changing_links(rank, world_size, one)
    assert len(made) == 2
    return found


def test_the_memory_of_representations_that_are_no_longer_used_is_let_go(workers):
    first, *_ = workers(2, that_are_left, wide(steps=20, codec=LOSSY))
    assert set(first) == {1}


@pytest.mark.slow  # tests/exchange/test_choices.py has the choice
def test_ways_are_chosen_anew_when_links_change_on_all_ranks_together(workers):
    first, second = workers(2, on_changing_links, wide(steps=20, codec=LOSSY))
    for name, values in first.parameters.items():
        assert torch.equal(values, second.parameters[name])
    before, after = map(ways, first.events("ways"))
    assert set(before.values()) == {"exact"}
    assert {layer for layer, way in after.items() if way == "onebit"} == LARGE
    assert [one["step"] for one in first.said if one.get("event") == "ways"] == [0, 11]
    assert len(first.events("exchange")) == 2, "the first choice changed nothing"
    assert mean(sent(first)[12:]) < 0.5 * mean(sent(first)[4:10])
