"""The agreed order: what a wire does that always takes the most urgent of what is there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from volary.exchange._order import most_urgent_first

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
