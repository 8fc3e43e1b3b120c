"""`strategy.workers: 2..8`: between how many workers a run trains."""

from __future__ import annotations

from pathlib import Path

import pytest

from volary.errors import BadInput
from volary.session import Session
from volary.session.values.worker_range import WorkerRange


def read(strategy: str, *overrides: str) -> Session:
    text = f"network: lenet\ndata: {{source: digits, batch_size: 64}}\ntrain: {{steps: 9}}\nstrategy: {{{strategy}}}\n"
    Path("session.yaml").write_text(text)
    return Session.read("session.yaml", overrides)


@pytest.mark.parametrize("more", ["recover: memory", "exchange: server, consistency: async"])
def test_a_range_begins_with_the_most_and_is_read_again_as_it_was(more):
    session = read(f"workers: 2..8, {more}")
    assert (session.strategy.workers, session.strategy.between) == (8, WorkerRange(2, 8))
    Path("again.yaml").write_text(session.to_yaml())
    assert Session.read("again.yaml") == session
    fewer = Session.read("again.yaml", ["strategy.workers=3"])
    assert (fewer.strategy.workers, fewer.strategy.between) == (3, WorkerRange(2, 8))


def test_a_range_is_a_setting_of_the_command_line_and_of_python_too():
    assert read("workers: 3, recover: memory", "strategy.workers=2..4").strategy.between == WorkerRange(2, 4)
    assert read("workers: 2..4, recover: memory", "strategy.workers=3").strategy.between is None
    plain = {"workers": "2..4", "recover": "memory"}
    made = Session(network="lenet", data={"source": "digits", "batch_size": 64}, train={"steps": 9}, strategy=plain)
    assert made.strategy.workers == 4 and str(made.strategy.between) == "2..4"


@pytest.mark.parametrize(
    ("strategy", "sentence"),
    [
        ("workers: 8..2, recover: memory", "workers is 8..2; accepted: the fewest before the most, from 1 on, as 2..8"),
        ("workers: 0..2, recover: memory", "workers is 0..2; accepted: the fewest before the most"),
        (
            "workers: 2..x, recover: memory",
            "strategy.workers: is '2..x'; accepted: a whole number, or the fewest and the most, as 2..8",
        ),
        ("workers: 2..8", "workers is 2..8, and with recover=checkpoint and consistency=bsp they are fixed; accepted:"),
        (
            "workers: 2..8, exchange: server",
            "and consistency=bsp they are fixed; accepted: a number, or recover=memory",
        ),
        ("workers: 9, between: 2..8, recover: memory", "workers is 9; accepted: 2..8, as strategy.between says"),
    ],
)
def test_what_is_no_range_of_workers_that_come_and_go_is_refused_in_a_sentence(strategy, sentence):
    with pytest.raises(BadInput) as raised:
        read(strategy)
    (line,) = str(raised.value).splitlines()
    assert sentence in line.replace("strategy.workers: is ", "workers is ") or sentence in line
