"""Which order follows from steps that were watched."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from torch import nn

from exchange._buckets_of import buckets_of
from exchange._factored import Factored
from train.test_agreed_plan import Network
from volary.exchange.overlap.comm_thread import ParcelTimes
from volary.exchange.overlap.order import StepTimes
from volary.train.strategies.profile import Profile


def watched(links_per_s: float | None = None, late_s: Sequence[float] = (0.0,)) -> Profile:
    """Backward from 9 to 10.2 s, a chunk after the other; forward ends at 12 s and waited for the first layer alone.

    late_s: how much later the last layer's chunks were there than in other steps, of each step that is watched.
    """
    buckets = buckets_of(Network())  # two.bias, two.weight, one.bias, one.weight: 20, 32, 20 and 32 values
    profile = Profile(buckets.chunks, list(reversed(buckets.slots)), links_per_s)
    for later_s in late_s:
        ready_s = [10.0 + later_s, 10.1 + later_s, 10.15, 10.2]
        for chunk, when in zip(buckets.chunks, ready_s, strict=True):
            profile.travelled(chunk, ParcelTimes(when, when, when + 0.15))  # 104 values in 0.35 s, as they overlap
            profile.updated(chunk, when + 0.2, when + 0.2)
        profile.waited(buckets.slots[-1].gate, 10.3, 10.5)
        profile.ended(9.0, 12.0)
    return profile


def test_the_order_is_what_the_wire_would_have_done_in_the_step_that_was_watched():
    assert watched().order() == [0, 1, 3, 2]


def test_links_that_are_known_to_be_faster_than_they_seemed_carry_each_chunk_as_it_comes():
    assert watched(7000.0).order() == [0, 1, 2, 3], "0.12 s for all of them, and not 0.35 s"


def test_steps_that_something_disturbed_do_not_count_while_they_are_few():
    assert watched(late_s=[1.0]).order() != watched().order()
    assert watched(late_s=[1.0, 0.0, 0.0, 1.0, 0.0]).order() == watched().order()


def test_a_step_whose_sums_took_no_time_has_an_order_all_the_same():
    buckets = buckets_of(Network())
    profile = Profile(buckets.chunks, list(reversed(buckets.slots)), None)
    for chunk in buckets.chunks:
        profile.travelled(chunk, ParcelTimes(1.0, 1.0, 1.0))
    profile.ended(1.0, 1.0)
    assert sorted(profile.order()) == [0, 1, 2, 3]


def divided(profile: Profile, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, ...], float]:
    """How long forward computes with the parcels of each parameter before it comes to the next, as is expected."""
    cycles: list[StepTimes] = []

    def kept(cycle: StepTimes, first: list[int]) -> list[int]:
        cycles.append(cycle)
        return first

    monkeypatch.setattr("volary.train.strategies.profile.quickest", kept)
    profile.order()
    found: dict[tuple[int, ...], float] = {}
    for parcels, seconds in cycles[0].uses:
        found[tuple(parcels)] = found.get(tuple(parcels), 0.0) + seconds
    return found


def test_what_forward_computed_between_two_waits_is_divided_as_backward_was(monkeypatch):
    found = divided(watched(), monkeypatch)
    assert found == pytest.approx({(0,): 1.25, (1,): 0.125, (2,): 0.0625, (3,): 0.0625}), "1.5 s, as 1.2 were"


def test_backward_works_on_a_layer_after_its_factors_are_there_and_before_other_gradients_are(monkeypatch):
    buckets = Factored(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4)), ["1"]).buckets
    profile = Profile(buckets.chunks, list(reversed(buckets.slots)), None)
    for chunk, when in ((buckets.all[0].chunks[0], 9.2), (buckets.all[1].chunks[0], 9.6)):
        profile.travelled(chunk, ParcelTimes(when, when, when + 0.1))
    profile.waited(buckets.slots[-1].gate, 10.0, 10.5)
    profile.ended(9.0, 12.0)
    assert divided(profile, monkeypatch) == pytest.approx({(1,): 0.5, (0,): 1.0}), "half of what is between is each's"


@pytest.mark.parametrize("watch", [watched, lambda: watched(1e9)])
def test_every_parcel_is_named_once(watch):
    assert sorted(watch().order()) == [0, 1, 2, 3]
