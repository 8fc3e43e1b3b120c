"""`volary.init()`: a process becomes a worker however it was started, or says in one sentence why it cannot."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import volary
from faults._running import SOURCE
from train import _own_loops
from train._own_programs import PROGRAM
from train.test_own_loop import call
from volary.errors import BadInput, ProgramEnded, SettingError
from volary.run.directory import RunDirectory
from volary.session.script import Script
from volary.train.own.startup import init
from volary.train.own.startup.run_program import run_program
from volary.train.recording.recorder import Recorder


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """A process that has not called init yet, and that nobody has started as a worker."""
    monkeypatch.setattr(init, "_worker", None)
    monkeypatch.setattr(init, "_offer", None)
    monkeypatch.setattr(sys, "argv", ["mine.py"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in os.environ if name.startswith(("VOLARY_", "TORCHELASTIC_", "OMPI_", "PMI_"))]:
        monkeypatch.delenv(name)


def run_by_hand(text: str, *arguments: str) -> str:
    """Runs a program as a run's process does, without the process."""
    Path("mine.py").write_text(text)
    script = Script.of_program("mine.py", arguments)
    directory = RunDirectory.create(Path("runs"), None, script.name, script.to_yaml())
    member: Any = SimpleNamespace(directory=directory, place=SimpleNamespace(rank=1, leads=False))
    pulse: Any = None
    return run_program(member, Recorder(0), pulse)


def test_alone_it_is_a_world_of_one_and_nothing_is_written():
    worker = volary.init()
    try:
        assert (worker.rank, worker.world_size, worker.local_rank) == (0, 1, 0)
        found = _own_loops.plain(worker)
        worker.record(loss=1.0)
    finally:
        worker.close()
    expected, _ = call(_own_loops.plain, 0, 1, 0)
    for name, tensor in expected["state"].items():
        torch.testing.assert_close(found["state"][name], tensor, rtol=0, atol=0)
    assert list(Path().iterdir()) == []


def test_a_second_call_in_a_process_is_refused():
    volary.init().close()
    with pytest.raises(BadInput, match=r"volary.init was called twice in this process; accepted: once"):
        volary.init()


def test_a_process_of_two_launchers_is_told_so(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"):
        monkeypatch.setenv(name, "1" if name == "WORLD_SIZE" else "0")
    for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"):
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", "1" if "SIZE" in name else "0")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("PMIX_NAMESPACE", "1")
    with pytest.raises(BadInput, match=r"started by \w+ and by \w+ at once; use one launcher"):
        volary.init()


def test_settings_in_the_environment_that_cannot_be_read_are_told(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"):
        monkeypatch.setenv(name, "1" if name == "WORLD_SIZE" else "0")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("VOLARY_SETTINGS", "run.name='it")
    with pytest.raises(
        BadInput, match=r"VOLARY_SETTINGS is \"run.name='it\": No closing quotation; accepted: NAME=VALUE"
    ):
        volary.init()


def test_a_process_that_a_worker_started_is_no_worker(monkeypatch):
    for name, value in (("RUN", "/x"), ("MEET", "h:1"), ("LIFE", "0"), ("SERVER_LIFE", "x"), ("JOB", "a:b")):
        monkeypatch.setenv(f"VOLARY_{name}", value)
    with pytest.raises(BadInput, match=r"a process that is no worker itself, .*; accepted: in a program that"):
        volary.init()


def test_a_process_of_multiprocessing_is_told_of_the_guard(monkeypatch):
    monkeypatch.setattr(init.multiprocessing, "parent_process", lambda: SimpleNamespace(pid=1))
    with pytest.raises(BadInput, match=r'put the training under `if __name__ == "__main__":`'):
        volary.init()


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        (
            "import sys; sys.exit(2)",
            2,
            "mine.py ended with status 2 before it called volary.init(), so there is no run",
        ),
        (
            "raise SystemExit('not so')",
            1,
            "mine.py ended with status 1 before it called volary.init(), so there is no run: not so",
        ),
        ("import argparse; argparse.ArgumentParser().parse_args()", 2, "mine.py ended with status 2 before"),
    ],
)
def test_a_program_that_ends_itself_gives_its_own_status(text, status, said):
    with pytest.raises(ProgramEnded) as ended:
        run_by_hand(text, "--unknown")
    assert str(ended.value).startswith(said)
    assert (ended.value.exit_code, ended.value.begun) == (status, False)


def test_a_program_that_never_becomes_a_worker_is_told_how():
    with pytest.raises(
        BadInput, match=r"mine.py ended without volary.init\(\), so each worker ran all of it by itself"
    ):
        run_by_hand("import volary")


def test_a_program_runs_as_python_would_run_it():
    Path("beside.py").write_text("VALUE = 3")
    seen = "[__name__, __file__, sys.argv, beside.VALUE]"
    text = f"import sys, beside, json\nfrom pathlib import Path\nPath('seen').write_text(json.dumps({seen}))\n1 / 0"
    with pytest.raises(ZeroDivisionError):
        run_by_hand(text, "--width", "3")
    here = str(Path("mine.py").absolute())
    assert json.loads(Path("seen").read_text()) == ["__main__", here, [here, "--width", "3"], 3]


def test_a_program_that_is_not_there_is_refused_before_anything_starts():
    with pytest.raises(SettingError, match=r"absent.py: no such file; accepted: a Python program, or -m and a module"):
        Script.of_program("absent.py", []).check()
    with pytest.raises(SettingError, match=r"no module 'absent.one'; looked in "):
        Script.of_program("-m absent.one", []).check()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"import volary\ndef f(:\n", "mine.py:2: SyntaxError: invalid syntax, in 'def f(:'"),
        (b"if True:\nx = 1\n", "mine.py:2: IndentationError: expected an indented block after 'if' statement"),
        (b"x = '\xff'\n", "mine.py:1: SyntaxError: (unicode error) 'utf-8' codec can't decode byte 0xff"),
        (b"x = 1\0\n", "mine.py"),
    ],
)
@pytest.mark.parametrize("program", ["mine.py", "-m mine"])
def test_a_program_that_python_cannot_compile_is_refused_before_anything_starts(text, sentence, program):
    Path("mine.py").write_bytes(text)
    with pytest.raises(SettingError) as caught:
        Script.of_program(program, []).check()
    assert str(caught.value).startswith(sentence)
    assert str(caught.value).endswith("; accepted: a file that Python compiles")


def test_a_program_of_another_encoding_or_an_archive_is_no_mistake():
    Path("mine.py").write_bytes("# coding: latin-1\nx = 'ä'\n".encode("latin-1"))
    Script.of_program("mine.py", []).check()
    with zipfile.ZipFile("mine.pyz", "w") as archive:
        archive.writestr("__main__.py", "import volary")
    Script.of_program("mine.pyz", []).check()


def test_a_package_is_run_by_its_main_file_which_is_compiled_first():
    Path("whole").mkdir()
    Path("whole/__init__.py").touch()
    with pytest.raises(SettingError, match="no module 'whole'; looked in"):
        Script.of_program("-m whole", []).check()
    Path("whole/__main__.py").write_text("def f(:")
    importlib.invalidate_caches()
    with pytest.raises(SettingError, match=r"^whole/__main__.py:1: SyntaxError: invalid syntax"):
        Script.of_program("-m whole", []).check()


def test_a_package_that_cannot_be_imported_is_named_with_its_line():
    Path("broken").mkdir()
    Path("broken/__init__.py").write_text("1 / 0")
    with pytest.raises(SettingError, match=r"^-m broken.mine: its package cannot be imported: broken/__init__.py:1 in"):
        Script.of_program("-m broken.mine", []).check()


def test_what_a_program_is_called_as_survives_its_run_directory(tmp_path):
    script = Script.of_program("mine.py", ["--x", "a b"], ["strategy.workers=2", "strategy.codec=onebit"])
    (tmp_path / "session.yaml").write_text(script.to_yaml())
    again = Script.read(tmp_path / "session.yaml")
    assert again == script
    assert (again.arguments, again.strategy.workers, again.name) == (["--x", "a b"], 2, "mine")


@pytest.mark.slow  # two launchers; tests/engine/test_every_engine.py has what they start
def test_torchrun_starts_a_program_whose_ranks_train_as_one_process_does():
    Path("mine.py").write_text(PROGRAM)
    variables = os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    variables["VOLARY_SETTINGS"] = "run.name='by-torchrun' early_update=true"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "mine.py", "--epochs", "3"]
    together = subprocess.run(launcher, env=variables, capture_output=True, text=True, timeout=300)
    assert together.returncode == 0, together.stderr
    assert "Traceback" not in together.stderr
    alone = subprocess.run(
        [sys.executable, "mine.py", "--epochs", "3"], env=variables, capture_output=True, text=True, timeout=300
    )
    said, _, value = alone.stdout.strip().partition(": ")
    assert said == "__main__ 0 of 1", alone.stderr
    lines = sorted(together.stdout.split("\n")[:-1])
    assert [line.partition(": ")[0] for line in lines] == ["__main__ 0 of 2", "__main__ 1 of 2"]
    for line in lines:
        assert float(line.partition(": ")[2]) == pytest.approx(float(value), abs=1e-9)
    (run,) = RunDirectory.all_in(Path("runs"))
    result = volary.Result.of(run.path)
    assert (run.name, result.state, result.steps) == ("by-torchrun", "finished", 12)
