import sys

import pytest

from volary.errors import SettingError
from volary.session import Session, UserObject
from volary.session.reading.problems import SessionError


@pytest.fixture(autouse=True)
def fresh_imports(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def project(tmp_path):
    (tmp_path / "helpers_of_mine.py").write_text("SIZE = 3\n")
    (tmp_path / "nets.py").write_text(
        "from helpers_of_mine import SIZE\nclass Net:\n    size = SIZE\n    class Small:\n        pass\n"
    )
    (tmp_path / "mine_pkg").mkdir()
    (tmp_path / "mine_pkg" / "__init__.py").write_text("")
    (tmp_path / "mine_pkg" / "rules.py").write_text("from . import rules as same\ndef make():\n    return same.make\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "wants.py").write_text("import not_there_at_all\n")
    (tmp_path / "bad_syntax.py").write_text("def f(:\n")
    return tmp_path


def refer(reference, folder, **arguments):
    return UserObject.found_from(reference, folder, arguments)


def test_a_file_is_loaded_once_and_may_import_its_neighbours(project):
    net = refer("nets.py:Net", project).load()
    assert net.size == 3
    assert refer("./nets.py:Net", project).load() is net
    assert refer("nets.py:Net.Small", project).load() is net.Small


def test_a_module_is_found_beside_the_session_file(project):
    found = refer("mine_pkg.rules:make", project)
    assert found.reference == f"mine_pkg.rules:make in {project}"
    assert found.load()() is found.load()


def test_a_module_elsewhere_is_an_installed_one(project):
    found = refer("collections:OrderedDict", project)
    assert found.reference == "collections:OrderedDict"
    assert found.load().__name__ == "OrderedDict"


def test_a_reference_means_the_same_from_everywhere(project, monkeypatch, tmp_path_factory):
    written = [refer(text, project).reference for text in ("nets.py:Net", "nets:Net", "collections:Counter")]
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert [refer(text, tmp_path_factory.mktemp("run")).reference for text in written] == written


@pytest.mark.parametrize("text", ["a:b:c", ":Net", "nets.py:", "nets.py:1x", "a b:c", "a-b:c", "https://x.org:y"])
def test_what_has_neither_form_is_refused(project, text):
    with pytest.raises(SettingError) as caught:
        refer(text, project)
    assert str(caught.value) == f"is {text!r}; accepted: 'package.module:name' or 'path/file.py:name'"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("gone.py:Net", "gone.py: no such file (named as 'gone.py:Net')"),
        ("nets.py:Nett", "'nets.py:Nett': has no 'Nett'; did you mean 'Net'?"),
        ("nets.py:Net.Big", "'nets.py:Net.Big': has no 'Big'"),
        ("broken.py:x", "importing 'broken.py:x' failed: ZeroDivisionError: division by zero "
         "(broken.py:1 in <module>)"),
        ("wants.py:x", "no module 'not_there_at_all', wanted by 'wants.py:x'; looked among the installed packages"),
        ("not_there_at_all.x:y", "no module 'not_there_at_all', wanted by 'not_there_at_all.x:y'; "
         "looked among the installed packages"),
        ("mine_pkg.ruls:make", "no module 'mine_pkg.ruls', wanted by 'mine_pkg.ruls:make in {0}'; "
         "looked {0} and among the installed packages"),
        ("mine_pkg.rules:mak", "'mine_pkg.rules:mak in {0}': has no 'mak'; did you mean 'make'?"),
    ],
)  # fmt: skip
def test_what_cannot_be_loaded_is_one_clear_sentence(project, text, sentence):
    with pytest.raises(SettingError) as caught:
        refer(text, project).load()
    assert str(caught.value) == sentence.format(project)


def test_a_file_that_python_cannot_compile_is_refused_before_it_runs(project):
    with pytest.raises(SettingError) as caught:
        refer("bad_syntax.py:f", project).check()
    assert str(caught.value) == (
        "bad_syntax.py:1: SyntaxError: invalid syntax, in 'def f(:'; accepted: a file that Python compiles"
    )


def test_a_module_that_python_cannot_compile_is_named_with_its_line_once(project):
    with pytest.raises(SettingError, match=r"failed: SyntaxError: invalid syntax \(\S*bad_syntax.py:1\)$"):
        refer("bad_syntax:f", project).load()


def test_of_a_package_the_nearest_names_are_told(project):
    with pytest.raises(SettingError, match=r"has no 'NoSuchLoss'; nearest: .*Loss"):
        refer("torch.nn:NoSuchLoss", project).load()


def test_check_looks_without_running(project):
    refer("broken.py:x", project).check()
    refer("broken:x", project).check()
    with pytest.raises(SettingError, match="no such file"):
        refer("gone.py:x", project).check()
    with pytest.raises(SettingError, match="no module 'gone_too'"):
        refer("gone_too:x", project).check()


def test_a_session_file_names_code_beside_itself_with_arguments(project, write):
    session = Session.read(write("network: {name: 'nets:Net', size: 4, deep: {a: [1]}}\ndata: {source: digits}\n"))
    assert session.network == UserObject(f"nets:Net in {project}", {"size": 4, "deep": {"a": [1]}})
    assert session.network.load().__name__ == "Net"


FILE = "import os\nclass Net: pass\nclass _Own: pass\ndef make(): pass\n1 / 0\n"


@pytest.mark.parametrize("plugin", ["network", "loss", "optimizer", "data.source"])
@pytest.mark.parametrize(
    ("arguments", "where"), [({"size": 2**63}, ".size"), ({"deep": {"a": [1, {"b": -(2**90)}]}}, ".deep.a.b")]
)
def test_a_whole_number_beyond_64_bits_reaches_no_code_of_the_users_own(plugin, arguments, where):
    settings = {"network": "lenet", "data": {"source": "digits"}}
    section, _, key = plugin.rpartition(".")
    for given in ({"name": "mine.py:Mine", **arguments}, UserObject("mine.py:Mine", arguments)):
        with pytest.raises(SessionError) as refusal:
            Session(**{**settings, **({section: {key: given}} if section else {key: given})})
        assert f"{plugin}{where}: is " in str(refusal.value)
        assert str(refusal.value).endswith("; accepted: a number of 64 bits")
    largest = {"name": "mine.py:Mine", "size": 2**63 - 1, "ratio": 1e30}
    made = Session(**{**settings, **({section: {key: largest}} if section else {key: largest})})
    assert str(2**63 - 1) in made.to_yaml()


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("my_net.py", "is the file my_net.py; name the class or function in it: my_net.py:Net (found: Net, make)"),
        ("my_net", "is the file my_net.py; name the class or function in it: my_net.py:Net (found: Net, make)"),
        ("damaged.py", "is the file damaged.py; name the class or function in it: damaged.py:Name"),
        ("none.py", "is 'none.py', and there is no such file in {0}; accepted: 'package.module:name' or"),
        ("lenett", "unknown name 'lenett'; did you mean 'lenet'?"),
    ],
)
def test_a_file_without_a_name_in_it_is_answered_with_the_names_that_it_has(tmp_path, written, sentence):
    (tmp_path / "my_net.py").write_text(FILE)
    (tmp_path / "damaged.py").write_text("def (\n")
    file = tmp_path / "s.yaml"
    file.write_text(f"network: {written}\ndata: {{source: digits}}\n")
    with pytest.raises(SettingError) as refusal:
        Session.read(file)
    assert str(refusal.value).startswith(f"{file}:1:10: network: {sentence.format(tmp_path)}")


def test_a_name_that_no_other_is_near_to_is_answered_with_those_that_the_file_defines(tmp_path):
    names = "".join(f"class Net{number}: pass\n" for number in range(14))
    (tmp_path / "my_net.py").write_text(f"from pathlib import Path\n{names}")
    some = ", ".join(f"Net{number}" for number in range(12))
    with pytest.raises(SettingError) as refusal:
        refer("my_net.py:Missing", tmp_path).load()
    assert str(refusal.value).endswith(f"my_net.py:Missing': has no 'Missing'; it has: {some}, and 2 more")


def test_messages_call_an_object_by_its_file_and_name(tmp_path):
    assert refer("deep/my_net.py:Net", tmp_path).name == "my_net.py:Net"
    (tmp_path / "beside.py").touch()
    assert refer("beside:Net", tmp_path).name == "beside:Net"
