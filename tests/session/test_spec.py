import ast
import inspect
import pickle
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import get_type_hints

import pytest

from volary.errors import SettingError
from volary.session import Data, Period, RunSettings, Session, SessionError, Strategy, Train
from volary.train.optimizers.sgd import Sgd


def test_python_and_yaml_give_equal_sessions(write, short):
    made = Session(
        network="lenet",
        data={"source": "digits", "batch_size": 64},
        optimizer={"name": "sgd", "lr": 0.05, "momentum": 0.9},
        train={"epochs": 10},
        strategy={"workers": 2},
    )
    assert Session.read(write(short)) == made


def test_objects_and_plain_values_mean_the_same():
    plain = Session(network="lenet", data={"source": "digits"}, optimizer="sgd", evaluate={"every": "2 epochs"})
    objects = Session(
        network="lenet", data=Data(source="digits"), optimizer=Sgd(), evaluate={"every": Period(2, "epochs")}
    )
    assert plain == objects


def test_a_type_checker_knows_every_setting_and_takes_sections_as_mappings():
    (arguments,) = (
        each.args
        for each in ast.walk(ast.parse(inspect.getsource(Session)))
        if isinstance(each, ast.FunctionDef) and each.name == "__init__"
    )
    said = {each.arg: ast.unparse(each.annotation) for each in arguments.kwonlyargs if each.annotation}
    required = {
        each.arg for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value is None
    }
    hints = get_type_hints(Session)
    assert said == {
        each.name: f"{hints[each.name].__name__} | Mapping[str, Any]" if is_dataclass(hints[each.name]) else "Any"
        for each in fields(Session)
    }
    assert required == {
        each.name for each in fields(Session) if each.default is MISSING and each.default_factory is MISSING
    }


def test_everything_but_network_and_source_has_a_default(write):
    session = Session.read(write("network: lenet\ndata: {source: digits}\n"))
    assert session.train.epochs == 10
    assert session.optimizer == Sgd()
    assert session.strategy.workers == 1
    assert session.evaluate.every == Period(1, "epochs")
    assert session.run == RunSettings()


def test_an_empty_section_means_its_defaults(write, short):
    assert Session.read(write(short.replace("{epochs: 10}", ""))).train == Train()


def test_steps_take_the_place_of_the_default_epochs():
    assert Train(steps=5).epochs is None
    assert Train(steps=5).steps == 5


def test_a_whole_number_is_accepted_as_a_number_and_becomes_one():
    assert type(Sgd(lr=1).lr) is int
    session = Session(network="lenet", data={"source": "digits"}, optimizer=Sgd(lr=1))
    assert type(session.optimizer.lr) is float


def test_a_section_alone_checks_itself():
    with pytest.raises(SettingError, match=r"^workers is 0; accepted: a whole number, 1 or more$"):
        Strategy(workers=0)
    with pytest.raises(SessionError, match=r"^Strategy\(...\): codec: unknown name 'nine'"):
        Strategy(codec="nine")


def test_python_mistakes_are_reported_all_at_once():
    with pytest.raises(SessionError) as caught:
        Session(network="lenet", data={"source": "digits", "batch_size": "many"}, train={"seed": -1, "device": "gpu"})
    assert str(caught.value).splitlines() == [
        "Session(...): data.batch_size: is 'many'; accepted: a whole number",
        "Session(...): train.device: is 'gpu'; accepted: one of: auto, cpu, cuda",
        "Session(...): train.seed: is -1; accepted: a whole number from 0 to 2**63 - 1",
    ]


def test_an_object_of_another_room_is_refused():
    with pytest.raises(SessionError, match=r"^Session\(...\): schedule: Sgd is not one of volary.train.schedules: "):
        Session(network="lenet", data={"source": "digits"}, schedule=Sgd())


def test_a_session_and_its_error_travel_between_processes():
    session = Session(network="lenet", data={"source": "digits"})
    assert pickle.loads(pickle.dumps(session)) == session
    with pytest.raises(SessionError) as caught:
        Session(network="lenett", data={"source": "digits"})
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_the_train_section_knows_its_session_even_when_two_share_it(monkeypatch):
    shared = Train(steps=3)
    one, two = (Session(network=network, data={"source": "digits"}, train=shared) for network in ("lenet", "softmax"))
    assert one.train == two.train == shared
    assert vars(one.train)["_session"] is one
    assert vars(two.train)["_session"] is two
    assert vars(replace(one, network="softmax").train)["_session"] is not one
    with pytest.raises(SettingError, match="belongs to no session"):
        shared()
    monkeypatch.setattr(Train, "start", None)  # as without volary.api, which this room does not import
    with pytest.raises(SettingError, match="needs `from volary import Session`"):
        one.train()


def test_digests_differ_exactly_when_settings_do():
    session = Session(network="lenet", data={"source": "digits"})
    assert session.digest() == Session(network="lenet", data={"source": "digits"}, optimizer={"lr": 0.01}).digest()
    assert session.digest() != replace(session, optimizer="adam").digest()
    assert session.settings()["optimizer.lr"] == 0.01


def test_check_names_every_missing_thing(tmp_path):
    session = Session(
        network=f"{tmp_path}/net.py:Net",
        data={"source": {"name": "idx", "folder": str(tmp_path / "none")}},
        optimizer="nowhere_to_be_found.rules:Mine",
    )
    with pytest.raises(SessionError) as caught:
        session.check()
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert lines[0] == "network: net.py: no such file (named as 'net.py:Net')"
    assert lines[1].startswith("data.source: ")
    assert lines[2].startswith("optimizer: no module 'nowhere_to_be_found', wanted by 'nowhere_to_be_found.rules:Mine'")
