"""The environment of a run: machine, system and versions."""

import json
import subprocess
import sys

import pytest

import volary
from volary.run.machine.environment import commit_of, environment, versions


def git(folder, *arguments):
    identity = ["-c", "user.name=someone", "-c", "user.email=someone@example.org"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init")
    (tmp_path / "net.py").write_text("first")
    git(tmp_path, "add", "net.py")
    git(tmp_path, "commit", "-m", "first")
    return tmp_path


def test_versions_are_those_of_the_packages_that_decide_the_numbers(monkeypatch):
    import torch

    found = versions()
    assert found["volary"] == volary.__version__
    assert found["torch"].partition("+")[0] == torch.__version__.partition("+")[0], "which build it is, only some say"
    assert "missing" not in found.values()
    monkeypatch.setattr("volary.run.machine.environment._PACKAGES", ("no-such-package",))
    assert versions()["no-such-package"] == "missing"


def test_the_commit_of_the_users_code_says_whether_files_differ_from_it(repository):
    clean = commit_of(repository)
    assert clean is not None
    assert len(clean) == 40
    (repository / "notes.txt").write_text("not tracked")
    assert commit_of(repository) == clean
    (repository / "net.py").write_text("second")
    assert commit_of(repository) == clean + "+changes"


def test_without_a_repository_or_without_git_there_is_no_commit(tmp_path, monkeypatch):
    assert commit_of(tmp_path) is None
    monkeypatch.setenv("PATH", "")
    assert commit_of(tmp_path) is None


def test_the_environment_is_plain_values_and_imports_nothing_heavy(tmp_path):
    facts = json.loads(json.dumps(environment(tmp_path)))
    assert facts["folder"] == str(tmp_path)
    assert facts["cores"] >= 1
    code = "import sys; from pathlib import Path; from volary.run.machine.environment import environment"
    heavy = "print(sorted({'torch', 'numpy', 'rich'} & set(sys.modules)))"
    said = subprocess.run(
        [sys.executable, "-c", f"{code}; environment(Path()); {heavy}"], capture_output=True, text=True, check=True
    )
    assert said.stdout == "[]\n"
