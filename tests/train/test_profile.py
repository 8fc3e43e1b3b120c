"""Which order follows from a step that was watched."""

from __future__ import annotations

import pytest
from torch import nn

from exchange._buckets_of import buckets_of
from exchange._factored import Factored
from train.test_agreed_plan import Network
from volary.exchange.overlap.comm_thread import ParcelTimes
from volary.exchange.overlap.order import StepTimes
from volary.train.strategies.profile import Profile


def watched(links_per_s: float | None = None) -> Profile:
    """Backward from 9 to 10.2 s, a chunk after the other; forward ends at 12 s and waited for the first layer alone."""
    buckets = buckets_of(Network())  # two.bias, two.weight, one.bias, one.weight: 20, 32, 20 and 32 values
    profile = Profile(buckets.chunks, list(reversed(buckets.slots)), links_per_s)
    for chunk, when in zip(buckets.chunks, [10.0, 10.1, 10.15, 10.2], strict=True):
        profile.travelled(chunk, ParcelTimes(when, when, when + 0.15))  # 104 values in 0.35 s, as they overlap
        profile.updated(chunk, when + 0.2, when + 0.2)
    profile.waited(buckets.slots[-1].gate, 10.3, 10.5)
    return profile


def test_the_order_is_what_the_wire_would_have_done_in_the_step_that_was_watched():
    assert watched().order(9.0, 12.0) == [0, 1, 3, 2]


def test_links_that_are_known_to_be_faster_than_they_seemed_carry_each_chunk_as_it_comes():
    assert watched(7000.0).order(9.0, 12.0) == [0, 1, 2, 3], "0.12 s for all of them, and not 0.35 s"


def test_a_step_whose_sums_took_no_time_has_an_order_all_the_same():
    buckets = buckets_of(Network())
    profile = Profile(buckets.chunks, list(reversed(buckets.slots)), None)
    for chunk in buckets.chunks:
        profile.travelled(chunk, ParcelTimes(1.0, 1.0, 1.0))
    assert sorted(profile.order(1.0, 1.0)) == [0, 1, 2, 3]


def divided(profile: Profile, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, ...], float]:
    """How long forward computes with the parcels of each parameter before it comes to the next, as is expected."""
    cycles: list[StepTimes] = []

    def kept(cycle: StepTimes, first: list[int]) -> list[int]:
        cycles.append(cycle)
        return first

    monkeypatch.setattr("volary.train.strategies.profile.quickest", kept)
    profile.order(9.0, 12.0)
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
    assert divided(profile, monkeypatch) == pytest.approx({(1,): 0.5, (0,): 1.0}), "half of what is between is each's"


@pytest.mark.parametrize("watch", [watched, lambda: watched(1e9)])
def test_every_parcel_is_named_once(watch):
    assert sorted(watch().order(9.0, 12.0)) == [0, 1, 2, 3]
