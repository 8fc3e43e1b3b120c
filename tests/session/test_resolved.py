import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from volary.session import Session, UserObject
from volary.session.resolved import scalar

MOST = 2**63 - 1  # what a setting may be
WHOLE = st.integers(-MOST - 1, MOST)
POSITIVE = st.floats(min_value=1e-12, max_value=1e12)
NAME = st.text(string.ascii_letters + string.digits, min_size=1)
VALUES = st.recursive(
    st.none() | st.booleans() | WHOLE | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8")),
    lambda inside: (
        st.lists(inside, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inside, max_size=3)
    ),
    max_leaves=8,
)
PERIODS = st.just("never") | st.builds("{} {}".format, st.integers(1, 10**9), st.sampled_from(["steps", "epochs"]))
OPTIMIZERS = st.one_of(
    st.fixed_dictionaries({"name": st.just("sgd"), "lr": POSITIVE, "momentum": st.floats(0, 0.99)}),
    st.fixed_dictionaries({"name": st.just("adam"), "betas": st.tuples(st.floats(0, 0.99), st.floats(0, 0.99))}),
    st.builds(
        lambda arguments: {**arguments, "name": "mine.rules:Rule"},
        st.dictionaries(st.text(st.characters(codec="utf-8")), VALUES, max_size=4),
    ),
)
SESSIONS = st.fixed_dictionaries(
    {
        "network": st.just("lenet"),
        "data": st.builds(lambda n: {"source": "digits", "batch_size": n}, st.integers(1, MOST)),
    },
    optional={
        "optimizer": OPTIMIZERS,
        "schedule": st.builds(
            lambda steps: {"name": "multistep", "milestones": sorted(steps)}, st.sets(st.integers(1, MOST), min_size=1)
        ),
        "train": st.fixed_dictionaries(
            {},
            optional={
                "epochs": POSITIVE,
                "seed": st.integers(0, MOST),
                "clip_norm": st.none() | POSITIVE,
                "compare_replicas": PERIODS,
            },
        ),
        "evaluate": st.builds(lambda every: {"every": every}, PERIODS),
        "run": st.builds(
            lambda name, folder: {"name": name, "folder": folder},
            NAME,
            st.text(st.characters(codec="utf-8"), min_size=1),
        ),
    },
)


@settings(max_examples=25, deadline=None)
@given(given_session=SESSIONS)
def test_the_resolved_session_reads_back_to_an_equal_one(given_session, tmp_path_factory):
    session = Session(**given_session)
    path = tmp_path_factory.mktemp("run") / "session.yaml"
    path.write_text(session.to_yaml(), encoding="utf-8")
    again = Session.read(path)
    assert again == session
    assert again.digest() == session.digest()
    assert again.to_yaml() == session.to_yaml()


@settings(max_examples=200, deadline=None)
@given(value=st.none() | st.booleans() | WHOLE | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8")))
def test_a_scalar_is_read_back_as_itself(value):
    again = YAML(typ="safe", pure=True).load(f"a: {scalar(value)}\n")["a"]
    assert again == value
    assert type(again) is type(value)


def test_no_text_is_left_bare_that_another_yaml_reads_as_a_number_or_a_boolean():
    for text in ("no", "On", "null", "~", "1e3", "0x1", "1:30", "2026-11-21", ".inf", "", " a", "a: b", "a #b", "- a"):
        assert scalar(text) == f'"{text}"'
    for text in ("sgd", "runs", "1 epoch", "500 steps", "none"):
        assert scalar(text) == text


def test_every_setting_stands_in_the_resolved_session_with_its_value(write, short):
    text = Session.read(write(short)).to_yaml()
    for line in (
        "  lr: 0.05",
        "  nesterov: false",
        "  epochs: 10.0",
        "  steps: null",
        "  every: 1 epoch",
        "  codec: none",
    ):
        assert line in text.splitlines()


def test_the_users_code_still_resolves_from_the_run_directory(write, tmp_path):
    (tmp_path / "nets.py").write_text("class Net: pass\n")
    session = Session.read(write("network: nets.py:Net\nloss: 'nets:Net'\ndata: {source: digits}\n"))
    run = tmp_path / "runs" / "one"
    run.mkdir(parents=True)
    (run / "session.yaml").write_text(session.to_yaml())
    again = Session.read(run / "session.yaml")
    assert again.network == UserObject(f"{tmp_path}/nets.py:Net")
    assert again.loss == UserObject(f"nets:Net in {tmp_path}")
    assert again == session


@pytest.mark.parametrize("value", [float("inf"), float("-inf")])
def test_infinite_arguments_survive(value, write):
    session = Session(network={"name": "m:N", "x": value}, data={"source": "digits"})
    assert Session.read(write(session.to_yaml())) == session
