import itertools

import pytest

from volary.session import Session
from volary.session.reading.problems import SessionError
from volary.train.optimizers.adam import Adam
from volary.train.optimizers.sgd import Sgd


@pytest.fixture
def read(write, short):
    return lambda *overrides, text=short: Session.read(write(text), overrides)


def test_an_override_is_as_if_it_stood_in_the_file(read, short):
    changed = short.replace("lr: 0.05", "lr: 1e-3").replace("workers: 2", "workers: 4")
    assert read("optimizer.lr=1e-3", "strategy.workers=4") == read(text=changed)


def test_it_opens_what_the_file_does_not_mention(read):
    assert read("schedule.warmup=5").schedule.warmup == 5
    assert read("checkpoint.keep_last=9").checkpoint.keep_last == 9


def test_it_reaches_into_a_bare_name_and_an_empty_section(read):
    text = "network: lenet\ndata: {source: digits}\noptimizer: adam\ntrain:\n"
    session = read("optimizer.lr=0.5", "train.seed=7", text=text)
    assert session.optimizer == Adam(lr=0.5)
    assert session.train.seed == 7


def test_a_name_alone_replaces_the_whole_choice(read):
    assert read("optimizer=sgd").optimizer == Sgd()
    assert read("optimizer={name: adam, lr: 0.5}").optimizer == Adam(lr=0.5)


def test_a_new_name_drops_what_the_file_gave_the_old_one(read):
    assert read("optimizer.name=adam").optimizer == Adam()
    assert read("optimizer.name=sgd").optimizer == Sgd(lr=0.05, momentum=0.9)


def test_the_order_of_overrides_does_not_matter(read):
    overrides = ["optimizer=adam", "optimizer.lr=0.5", "train.seed=3"]
    sessions = [read(*order) for order in itertools.permutations(overrides)]
    assert all(session == sessions[0] for session in sessions)
    assert sessions[0].optimizer == Adam(lr=0.5)
    assert read("optimizer.lr=0.5", "optimizer.name=adam").optimizer == Adam(lr=0.5)


def test_the_later_of_two_for_one_setting_holds(read):
    assert read("train.seed=3", "train.seed=4").train.seed == 4


def test_steps_and_epochs_take_each_others_place(read, short):
    assert (read("train.steps=20").train.steps, read("train.steps=20").train.epochs) == (20, None)
    assert read("train.epochs=2", text=short.replace("epochs: 10", "steps: 5")).train.steps is None


def test_a_runs_name_is_no_plug_in(read, short):
    assert read("run.name=x", text=short + "run: {name: y, folder: there}\n").run.folder == "there"


def test_arguments_of_the_users_own_code_can_be_set(read):
    session = read("network.sizes.hidden=[3, 4]", "network.name=net.py:Net")
    assert session.network.arguments == {"sizes": {"hidden": [3, 4]}}


def test_a_value_may_hold_equals_signs(read):
    assert read("run.folder=a=b").run.folder == "a=b"


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (
            ["strategy.workers=1000"],
            "command line: strategy.workers: data.batch_size is 64; accepted: 1000 or more, a sample for each part, "
            "or strategy.workers times train.accumulate of at most 64",
        ),
        (["train.accumulate=65"], "command line: train.accumulate: data.batch_size is 64; accepted: 130 or more"),
        (["strategy.workers=9", "data.batch_size=8"], "command line: data.batch_size: is 8; accepted: 9 or more"),
        (
            ["strategy.exchange=allreduce"],
            "command line: strategy.exchange: consistency",
        ),
    ],
)
def test_an_override_that_makes_a_right_line_wrong_is_blamed_itself(read, short, overrides, sentence):
    text = short.replace("workers: 2", "workers: 2, exchange: server, consistency: ssp")
    with pytest.raises(SessionError) as refusal:
        read(*overrides, text=text)
    assert str(refusal.value).startswith(sentence)
    assert "\n" not in str(refusal.value)


def test_paths_are_relative_to_the_file_and_those_of_the_command_line_to_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "s.yaml").write_text("network: lenet\ndata: {source: {name: idx, folder: data/mnist}}\n")
    monkeypatch.chdir(tmp_path)
    assert Session.read("sessions/s.yaml").data.source.folder == tmp_path / "sessions" / "data" / "mnist"
    there = Session.read("sessions/s.yaml", ["data.source.folder=data/mnist"])
    assert there.data.source.folder == tmp_path / "data" / "mnist"
    in_python = Session(network="lenet", data={"source": {"name": "idx", "folder": "data/mnist"}})
    assert in_python.data.source.folder == tmp_path / "data" / "mnist"
