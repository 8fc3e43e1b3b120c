"""Messages that make no sense cost their sender its place, and nobody else anything."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server._play import FIRST_SERVER, Play, every
from volary.comm.control.errors import BadMessage
from volary.server.protocol.from_members import (
    Again,
    Ask,
    Beat,
    Computed,
    Done,
    Evaluated,
    Figures,
    Kept,
    Leave,
    Saved,
    Unreachable,
)

NONSENSE = [
    Computed(0, 1.0, True),
    Computed(-1, 1.0, True),
    Done(5),
    Again(0),
    Done(2**63),
    Evaluated(1, 0, [1.0]),
    Figures(1, {}, 1.0),
    Beat(0),
    Kept(1),
    Saved(1, {}),
]


@pytest.mark.parametrize("message", NONSENSE)
def test_a_worker_that_tells_of_what_it_was_never_given_is_dropped(message):
    play = Play("async", workers=2)
    with pytest.raises(BadMessage):
        play.say(1, message)
    play.cut_off(1)
    play.to_the_end()
    assert play.learnt() == every(32, 1)


@pytest.mark.parametrize("message", [Ask(), Done(0), Leave(), Kept(1), Saved(1, {}), Unreachable(0)])
def test_a_server_that_tells_of_what_it_was_never_asked_is_dropped(message):
    play = Play("async", workers=1)
    with pytest.raises(BadMessage):
        play.say(FIRST_SERVER, message)


def test_a_worker_that_finishes_twice_or_before_it_computed_is_dropped():
    play = Play("ssp", workers=2, model={"staleness": 0})
    play.ask(0)
    with pytest.raises(BadMessage, match="before it was computed"):
        play.say(0, Done(0))
    play.say(0, Computed(0, 1.0, True))
    with pytest.raises(BadMessage, match="computed its contribution 0 twice"):
        play.say(0, Computed(0, 1.0, True))
    play.say(0, Done(0))
    with pytest.raises(BadMessage, match="finished its contribution 0 twice"):
        play.say(0, Done(0))


def test_a_worker_cannot_ask_without_end():
    play = Play("async", workers=2, here=False)
    play.join(0)
    with pytest.raises(BadMessage, match="at once"):
        for _ in range(100):
            play.say(0, Ask())


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
WORDS = ["ask", "computed", "done", "evaluated", "figures", "unreachable", "leave", "beat", "kept", "saved"]
FIELDS = ["clock", "snapshot", "piece", "server", "loss", "finite", "totals", "figures", "value", "applied", "files"]
NUMBERS = st.integers(-2, 5) | st.integers(-(2**63), 2**64 - 1)
SAID = st.builds(
    lambda word, fields: {"kind": word, **fields},
    st.sampled_from(WORDS),
    st.dictionaries(st.sampled_from(FIELDS), NUMBERS | st.lists(st.floats(), max_size=3) | PLAIN, max_size=4),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([1, 2, FIRST_SERVER + 1]), SAID | PLAIN), max_size=20), st.integers(0, 2**32))
def test_whatever_some_say_the_others_finish_the_run(messages, seed):
    play, random = (
        Play("async", servers=2, replicas=2, workers=3, validation=4, evaluate_every=lambda _: 1),
        Random(seed),
    )
    for peer, message in messages:
        play.ask(0)
        play.turn(0)
        if peer not in play.gone:
            try:
                play.deliver(play.roster.received(peer, message, play.now))
            except BadMessage:
                play.cut_off(peer)
    if not play.roster.outcome:
        for peer in (1, 2, FIRST_SERVER + 1):
            play.cut_off(peer)
        play.to_the_end(random)
    assert play.roster.outcome == "finished", play.roster.failure


@given(PLAIN | st.dictionaries(st.sampled_from(["is", "rank", "number", "facts", "samples"]), PLAIN, max_size=5))
def test_a_hello_that_makes_no_sense_is_refused(hello):
    play = Play("async", workers=1)
    with pytest.raises(BadMessage):
        play.roster.opened(50, hello, 0.0)
