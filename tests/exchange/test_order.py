"""The agreed order: what a wire does that always takes the most urgent of what is there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some
from torch import nn

from exchange._buckets_of import buckets_of
from volary.exchange.overlap.order import StepTimes, as_backward_ends, most_urgent_first, quickest

# layers of 1 to 4 chunks, whose gradients come one after the other
seconds = some.floats(0, 10, allow_nan=False)
layers = some.lists(
    some.lists(some.tuples(seconds, some.floats(1e-3, 3)), min_size=1, max_size=4), min_size=1, max_size=6
)


def as_chunks(found: list[list[tuple[float, float]]]) -> tuple[list[float], list[float], list[int]]:
    ready, takes, urgency = [], [], []
    for layer, chunks in reversed(list(enumerate(found))):
        ready += sorted(when for when, _ in chunks)
        takes += [how_long for _, how_long in chunks]
        urgency += [layer] * len(chunks)
    return ready, takes, urgency


@given(layers)
def test_everything_travels_once_and_chunks_of_a_layer_in_their_order(found):
    ready, takes, urgency = as_chunks(found)
    order = most_urgent_first(ready, takes, urgency)
    assert sorted(order) == list(range(len(ready)))
    for layer in range(len(found)):
        own = [chunk for chunk in order if urgency[chunk] == layer]
        assert own == sorted(own)


@given(layers)
def test_the_wire_is_never_idle_while_something_is_ready_and_takes_the_most_urgent_of_it(found):
    ready, takes, urgency = as_chunks(found)
    order = most_urgent_first(ready, takes, urgency)
    now = 0.0
    for place, chunk in enumerate(order):
        waiting = order[place:]
        now = max(now, min(ready[one] for one in waiting))
        assert ready[chunk] <= now, "it is on the wire before it exists"
        assert all(urgency[chunk] <= urgency[one] for one in waiting if ready[one] <= now)
        now += takes[chunk]


def test_an_urgent_chunk_overtakes_the_rest_of_a_large_one():
    # a large last layer in four chunks; the first layer's gradient comes while the second of them travels
    assert most_urgent_first([0, 0, 0, 0, 1.5], [1, 1, 1, 1, 1], [9, 9, 9, 9, 0]) == [0, 1, 4, 2, 3]


def test_nothing_to_send_is_no_order():
    assert most_urgent_first([], [], []) == []


def cycle(ready: list[float], takes: list[float], update: list[float], then: list[float]) -> StepTimes:
    """Times of a network whose layers are the parcels, the last one first, as in `then`, which forward computes."""
    count = len(ready)
    uses = [([parcel], then[parcel]) for parcel in reversed(range(count))]
    return StepTimes(ready, takes, update, list(reversed(range(count))), uses)


moments = some.floats(0, 2, allow_nan=False)
cycles = some.integers(1, 6).flatmap(
    lambda count: some.builds(cycle, *[some.lists(moments, min_size=count, max_size=count)] * 4)
)


@given(cycles)
def test_no_order_that_was_begun_with_is_made_longer_and_none_is_shorter_than_wire_and_work(it):
    count = len(it.ready_s)
    first = most_urgent_first(it.ready_s, it.takes_s, it.urgency)
    found = quickest(it, first)
    assert sorted(found) == list(range(count))
    assert it.lasts_s(found) <= it.lasts_s(first)
    wire = min(it.ready_s) + sum(it.takes_s)
    work = max(it.ready_s) + max(sum(it.update_s), sum(then for _, then in it.uses))
    assert it.lasts_s(found) >= max(wire, work) - 1e-9


def test_what_is_used_last_and_quickly_arrives_last():
    # a small last layer whose gradient is there first; two large ones that take long to apply; convolutions
    it = cycle([0.0, 0.03, 0.07, 0.12], [0.07, 0.13, 0.13, 0.18], [0.002, 0.1, 0.1, 0.001], [0.005, 0.02, 0.02, 0.05])
    first = most_urgent_first(it.ready_s, it.takes_s, it.urgency)
    found = quickest(it, first)
    assert (first[0], found[-1]) == (0, 0)
    assert it.lasts_s(found) < 0.9 * it.lasts_s(first)


def test_updates_are_made_most_urgent_first_and_one_under_way_is_interrupted():
    it = cycle([0.0, 0.0], [1.0, 1.0], [5.0, 1.0], [0.0, 0.0])
    assert it.lasts_s([0, 1]) == 7.0, "the last layer's is put off from 2 to 3 s"
    assert it._applied_s([0, 1]) == [7.0, 3.0]


def test_as_backward_ends_a_weight_in_several_chunks_leaves_before_what_is_beside_it():
    network = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    buckets = buckets_of(network, bucket_mb=2**-9, chunk_mb=2**-9)  # of 512 values
    places = {id(parameter): place for place, parameter in enumerate(network.parameters())}
    slots = sorted(buckets.slots, key=lambda slot: places[id(slot.parameter)])
    chunks = [buckets.chunks[number] for number in as_backward_ends(buckets.chunks, slots)]
    assert sorted(chunk.index for chunk in chunks) == list(range(len(chunks)))
    found = [(chunk.slots[-1].name, len(chunk.slots)) for chunk in chunks]
    assert found == [*[("2.weight", 1)] * 8, ("2.bias", 3), *[("0.weight", 1)] * 2, ("0.bias", 1)]
