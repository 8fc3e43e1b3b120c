"""A resumed run's settings may change, within limits."""

import pytest

from volary.session import Session
from volary.session.changing import SettingChange, changes, planned_steps, refuse
from volary.session.reading.problems import SessionError

BEFORE = {
    "network": "lenet",
    "data": {"source": "digits"},
    "optimizer": {"name": "sgd", "lr": 0.05},
    "train": {"epochs": 10},
}


RULES = ("sgd", "adam")


def session(*overrides, tmp_path):
    file = tmp_path / "session.yaml"
    file.write_text(Session(**BEFORE).to_yaml())
    return Session.read(file, overrides)


def found(*overrides, tmp_path):
    return changes(session(tmp_path=tmp_path), session(*overrides, tmp_path=tmp_path))


def test_a_change_is_named_with_both_values_and_a_plugin_by_its_setting(tmp_path):
    made = found("optimizer.lr=0.5", "strategy.codec=bf16", "train.steps=7", tmp_path=tmp_path)
    assert [change for change in made if not change.setting.startswith("strategy.codec.")] == [
        SettingChange("optimizer.lr", 0.05, 0.5),
        SettingChange("train.epochs", 10.0, None),
        SettingChange("train.steps", None, 7),
        SettingChange("strategy.codec", "none", "bf16"),
    ]


def test_the_same_settings_are_no_change(tmp_path):
    assert found("optimizer.lr=0.05", "train.epochs=10", tmp_path=tmp_path) == []


@pytest.mark.parametrize(
    "override",
    ["optimizer.lr=0.01", "optimizer.momentum=0.1", "schedule=cosine", "train.epochs=20", "train.clip_norm=1",
     "strategy.workers=4", "strategy.codec=topk", "evaluate.every=7 steps", "checkpoint.keep_last=1",
     "strategy={exchange: server, consistency: ssp}", "train.precision=bf16", "data.source.border=5"],
)  # fmt: skip
def test_how_training_goes_may_change(override, tmp_path):
    made = found(override, tmp_path=tmp_path)
    assert made
    refuse(made, has_checkpoint=True)


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        (
            "network=alexnet",
            "network: cannot change .* the checkpoint holds the parameters of another network; accepted: lenet",
        ),
        ("optimizer=adam", "optimizer: cannot change .* the state of another optimiser; accepted: sgd, as before"),
        (
            "data.batch_size=128",
            "data.batch_size: cannot change .* counts its steps in batches of that size; accepted: 64",
        ),
        ("data.shuffle=false", "data.shuffle: cannot change .* order of the data"),
        ("train.seed=2", "train.seed: cannot change .* order of the data"),
        ("loss=mse", "loss: cannot change .* the best value so far was measured with it"),
    ],
)
def test_what_the_checkpoint_depends_on_is_refused_with_the_reason(override, sentence, tmp_path):
    made = found(override, tmp_path=tmp_path)
    with pytest.raises(SessionError, match=f"command line: {sentence}"):
        refuse(made, has_checkpoint=True)
    refuse(made, has_checkpoint=False)


def test_an_outer_rule_may_come_and_go_and_not_become_another(tmp_path):
    none = session("strategy.consistency=local", tmp_path=tmp_path)
    sgd, adam = (session(f"strategy.consistency={{name: local, outer: {one}}}", tmp_path=tmp_path) for one in RULES)
    for before, after in ((none, sgd), (sgd, none), (sgd, session(tmp_path=tmp_path))):
        refuse(changes(before, after), has_checkpoint=True)
    with pytest.raises(SessionError, match=r"outer: cannot change .* another outer rule; accepted: sgd, as before"):
        refuse(changes(sgd, adam), has_checkpoint=True)


def test_all_refusals_are_told_at_once(tmp_path):
    with pytest.raises(SessionError) as refused:
        refuse(found("network=alexnet", "train.seed=2", "run.name=other", tmp_path=tmp_path), has_checkpoint=True)
    assert len(str(refused.value).splitlines()) == 3


def test_a_run_is_never_moved_by_resuming_it(tmp_path):
    with pytest.raises(SessionError, match=r"run\.name: a run stays where it is"):
        refuse(found("run.name=other", tmp_path=tmp_path), has_checkpoint=False)
    with pytest.raises(SessionError, match=r"checkpoint\.path: a run's checkpoints stay where they are"):
        refuse(found("checkpoint.path=/other", tmp_path=tmp_path), has_checkpoint=False)


@pytest.mark.parametrize(
    ("length", "steps"), [("epochs=2", 46), ("epochs=0.5", 12), ("steps=7", 7), ("epochs=0.01", 1)]
)
def test_the_length_of_a_run_is_counted_as_training_counts_it(length, steps, tmp_path):
    assert planned_steps(session(f"train.{length}", tmp_path=tmp_path), 23) == steps
