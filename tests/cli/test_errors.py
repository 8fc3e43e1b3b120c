"""Exit statuses and what is said on stderr: docs/command-line.md lists them."""

from __future__ import annotations

import errno
import operator
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import SOURCE
from monitor._made_runs import whole_run
from volary import errors
from volary.errors import VolaryError
from volary.monitor.tables import listing
from volary.run import directory
from volary.run.disk import Disk

GUIDE = Path(__file__).parents[2] / "docs" / "command-line.md"


def raising(error):
    def listing(*_, **__):
        raise error

    return listing


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.BadInput("a"), 2),
        (errors.WorkerFailed("a"), 3),
        (errors.WorkerLost("a"), 4),
        (errors.RanksDiffer("a"), 5),
        (errors.NotFinite("a"), 6),
        (errors.VolaryError("a"), 1),
    ],
)
def test_an_error_of_ours_is_its_message_and_its_status(error, status, volary, monkeypatch):
    monkeypatch.setattr(listing, "listing", raising(error))
    said = volary("runs")
    assert (said.status, said.out, said.err) == (status, "", "a\n")
    assert f"\n| {status} |" in GUIDE.read_text()


@pytest.mark.parametrize("where", [["--debug", "runs"], ["runs", "--debug"]])
def test_debug_shows_the_traceback_and_the_message_still_comes_last(where, volary, monkeypatch):
    monkeypatch.setattr(listing, "listing", raising(errors.BadInput("the sentence")))
    said = volary(*where)
    assert said.err.startswith("Traceback (most recent call last)")
    assert said.err.endswith("\nthe sentence\n")


def test_notes_of_an_error_are_printed_below_it(volary, monkeypatch):
    error = errors.WorkerFailed("what happened")
    error.add_note("what to do")
    monkeypatch.setattr(listing, "listing", raising(error))
    assert volary("runs").err == "what happened\nwhat to do\n"


def test_an_error_that_nobody_foresaw_is_one_sentence(volary, monkeypatch):
    monkeypatch.setattr(listing, "listing", operator.truediv)  # in C: no frame is the user's
    said = volary("runs")
    assert (said.status, said.err) == (
        1,
        "unexpected TypeError: unsupported operand type(s) for /: 'PosixPath' and 'list'. "
        "`volary --debug` with the same words shows where.\n",
    )


def test_an_error_in_the_users_own_code_begins_with_its_line(volary, monkeypatch):
    Path("mine.py").write_text("def f(folder, columns):\n    raise ValueError('boom')\n")
    names: dict[str, Any] = {}
    exec(compile(Path("mine.py").read_text(), str(Path.cwd() / "mine.py"), "exec"), names)
    monkeypatch.setattr(listing, "listing", names["f"])
    said = volary("runs")
    assert said.status == 3
    assert said.err.splitlines()[:3] == [
        "mine.py:2 in f: ValueError: boom",
        "  | mine.py:2 in f",
        "  |     raise ValueError('boom')",
    ]


def test_a_file_that_cannot_be_written_is_named(volary):
    said = volary("init", "no/such/folder.yaml")
    sentence = "no/such cannot be written: No such file or directory; accepted: a file in a folder that can be written"
    assert (said.status, said.err) == (2, f"FILE: {sentence}\n")


def test_ctrl_c_says_nothing(volary, monkeypatch):
    monkeypatch.setattr(listing, "listing", raising(KeyboardInterrupt()))
    said = volary("runs")
    assert (said.status, said.err.strip()) == (130, "")


INTERRUPTING = """
import os, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored here

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["WHILE_IMPORTING"]:
            os.kill(os.getpid(), int(os.environ["SIGNAL"]))

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize(
    "module", ["click", "volary.cli.command.verbs", "volary.cli.runs", "volary.monitor.tables.listing"]
)
def test_ctrl_c_while_modules_are_imported_says_nothing(fresh, module, number):
    Path("sitecustomize.py").write_text(INTERRUPTING)
    said = fresh(
        *("-m", "volary", "runs"),
        PYTHONPATH=f"{Path.cwd()}:{SOURCE}",
        WHILE_IMPORTING=module,
        SIGNAL=str(int(number)),
    )
    assert (said.status, said.out, said.err.strip()) == (130, "", "")  # click ends the line of a ^C


COMPILING = """
import os, signal, sys, types

signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored here

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "unicodedata":
            os.kill(os.getpid(), int(os.environ["SIGNAL"]))

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_ctrl_c_while_the_compiler_imports_is_no_mistake_in_the_source(fresh, number):
    """The compiler imports a module for names of characters, and says that it cannot do so whatever happened there."""
    Path("sitecustomize.py").write_text(COMPILING)
    Path("mine.py").write_text(r'BULLET = "\N{BULLET}"')
    code = "import sys; from volary import cli; from volary.cli.command import main; "
    code += "main.run = lambda _: __import__('mine') and 0; cli.main()"
    said = fresh("-c", code, PYTHONPATH=f"{Path.cwd()}:{SOURCE}", SIGNAL=str(int(number)))
    assert (said.status, said.out, said.err) == (130, "", "")


AT = """
import os, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored here

class Finder:
    imported = 0

    def find_spec(self, name, path=None, target=None):
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            Finder.imported += 1
            if Finder.imported == int(os.environ["AT"]):
                os.kill(os.getpid(), int(os.environ["SIGNAL"]))

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.slow  # many processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("verb", [["check", "session.yaml"], ["runs"], ["train", "session.yaml", "train.steps=1"]])
def test_ctrl_c_at_any_import_of_a_verb_says_no_more_than_that_it_was_stopped(fresh, verb, number):
    Path("sitecustomize.py").write_text(AT)
    Path("session.yaml").write_text("network: softmax\ndata: {source: digits, batch_size: 30}\nrun: {name: it}\n")
    at, status = 1, 130
    while status == 130:
        found = {"PYTHONPATH": f"{Path.cwd()}:{SOURCE}", "AT": str(at), "SIGNAL": str(int(number))}
        said = fresh("-m", "volary", *verb, PYTHONDONTWRITEBYTECODE="1", **found)
        assert not {"Traceback", "unexpected", "ignored"} & set(said.err.split()), said.err
        status, at = said.status, at * 2
        shutil.rmtree("runs", ignore_errors=True)
    assert status == 0, said.err  # there are no more imports
    assert at > 16


def test_before_the_command_can_answer_a_ctrl_c_it_imports_nothing_but_itself(fresh):
    code = "import sys; before = set(sys.modules); import volary.cli; print(*sorted(set(sys.modules) - before))"
    assert fresh("-S", "-c", code).out == "volary volary.cli\n"


def test_ctrl_c_while_the_command_itself_is_imported_says_nothing(fresh):
    Path("sitecustomize.py").write_text(INTERRUPTING)
    found = {"PYTHONPATH": f"{Path.cwd()}:{SOURCE}", "WHILE_IMPORTING": "volary.cli", "SIGNAL": "2"}
    said = fresh("-m", "volary", "runs", **found)
    assert (said.status, said.out, said.err) == (130, "", "")


def test_a_run_that_the_machine_does_not_let_be_made_is_an_error_of_the_machine_with_the_real_path(volary, monkeypatch):
    volary("init")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "runs/.new-1-x/key")

    monkeypatch.setattr(Disk, "write", full)
    said = volary("train", "session.yaml")
    assert (said.status, said.out) == (1, "")
    assert said.err == "no run can be made in runs: No space left on device\n"
    assert not list(Path("runs").iterdir())


def test_a_folder_for_runs_that_is_a_file_is_the_users_to_mend(volary):
    volary("init")
    said = volary("train", "session.yaml", "run.folder=session.yaml")
    sentence = "session.yaml cannot be written: Not a directory; accepted: a folder in which files can be made"
    assert (said.status, said.err) == (2, f"run.folder: {sentence}\n")


def test_a_database_for_which_there_is_no_space_is_an_error_of_the_machine_too(volary, monkeypatch):
    volary("init")

    def full(path: Path) -> None:
        raise VolaryError(f"{path}: cannot be written: database or disk is full")

    monkeypatch.setattr(directory, "Journal", full)
    said = volary("train", "session.yaml")
    assert (said.status, said.err) == (
        1,
        "no run can be made in runs: run.sqlite: cannot be written: database or disk is full\n",
    )


def test_a_misspelt_verb_is_answered_with_the_nearest(volary):
    said = volary("trian")
    assert said.status == 2
    assert "no verb 'trian'; did you mean 'train'? Known: " in said.err
    known = said.err.rpartition("Known: ")[2].strip().split(", ")
    assert known == sorted(known)
    assert {"bench", "check", "train"} <= set(known)


def test_a_misspelt_option_is_answered_with_the_nearest(volary):
    said = volary("runs", "--jsn")
    assert said.status == 2
    assert "--json" in said.err


def test_when_the_reader_of_the_output_goes_away_nothing_is_said():
    whole_run()
    command = subprocess.Popen(
        [sys.executable, "-m", "volary", "runs"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert command.stdout is not None
    command.stdout.close()
    _, err = command.communicate(timeout=300)
    assert (command.returncode, err) == (1, "")
