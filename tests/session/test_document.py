"""A session's text in which settings are changed: it says what the overrides say, and all else stays as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from volary.session.pages.document import changed
from volary.session.reading.problems import SessionError
from volary.session.reading.read import read_as
from volary.session.spec import Session
from volary.session.starter import starter

WRITTEN = """# my session
network: lenet   # as Caffe has it
data: {source: digits, batch_size: 64}
optimizer:
  name: sgd  # plain
  lr: 0.05
  momentum: 0.5
"""


def session(text: str, *overrides: str) -> Session:
    return read_as(Session, text, "it.yaml", Path.cwd(), overrides)


OVERRIDES = [
    ["optimizer.lr=0.1"],
    ["optimizer.lr=1e-05"],
    ["optimizer=adam"],
    ["optimizer.name=adam", "optimizer.lr=0.002"],
    ["data.batch_size=8", "data.shuffle=false"],
    ["data.source={name: images, folder: photos, size: 32}"],
    ["strategy.codec=topk", "strategy.codec.ratio=0.02", "strategy.workers=3"],
    ["train.steps=5", "run.name=no", "train.clip_norm=null"],
    ["network={layers: [{linear: {outputs: classes}}]}"],
    ["loss.metrics=[f1, {name: topk, k: 3}]"],
]


@pytest.mark.parametrize("overrides", OVERRIDES, ids=lambda given: " ".join(given)[:40])
@pytest.mark.parametrize("text", [WRITTEN, starter()], ids=["short", "starter"])
def test_the_changed_text_reads_as_the_text_with_overrides(text, overrides):
    assert session(changed(text, overrides)) == session(text, *overrides)


def test_comments_order_and_style_stay():
    found = changed(WRITTEN, ["optimizer.lr=0.1", "data.batch_size=8", "train.steps=5"])
    assert found == WRITTEN.replace("0.05", "0.1").replace("64", "8") + "train:\n  steps: 5\n"
    assert changed(WRITTEN, []) == WRITTEN
    assert changed(WRITTEN, ["optimizer.lr=0.05"]) == WRITTEN


def test_a_wrong_value_is_written_as_it_was_typed_and_refused_where_it_stands():
    found = changed(WRITTEN, ["optimizer.lr=0.5x"])
    assert found == WRITTEN.replace("0.05", "0.5x")
    with pytest.raises(SessionError, match=r"^it\.yaml:6:7: optimizer\.lr: is '0\.5x'; accepted: a number"):
        session(found)


@pytest.mark.parametrize("text", ["", "network: [", "- network\n", "network: lenet\nnetwork: lenet\n"])
def test_a_text_that_cannot_be_read_stays_as_it_is(text):
    assert changed(text, ["optimizer.lr=0.1"]) == text
    with pytest.raises(SessionError):
        session(text)


@pytest.mark.parametrize("override", ["optimizer.lr", "data.batch_size.x=1", "optimizer.lr=[", "=1"])
def test_an_override_that_cannot_be_read_changes_nothing(override):
    assert changed(WRITTEN, [override, "train.steps=5"]) == WRITTEN


def test_an_alias_is_changed_in_the_place_that_is_meant_alone():
    text = "network: lenet\ndata: {source: digits}\ntrain: {steps: &n 3}\nevaluate: {patience: *n}\n"
    both = changed(text, ["train.steps=5"])
    assert (session(both).train.steps, session(both).evaluate.patience) == (5, 3)
    text = "network: lenet\ndata: {source: digits}\ntrain: &all {steps: 3}\nevaluate: *all\n"
    assert "steps: 5" in changed(text, ["train.steps=5"])
