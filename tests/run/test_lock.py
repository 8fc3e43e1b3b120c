"""One writer a run, for exactly as long as it lives."""

import os
import subprocess
import sys
import threading

import pytest

from volary.errors import RunError
from volary.run.lock import RunLock, is_held

HOLD = """
import sys
from pathlib import Path
from volary.run.lock import RunLock
with RunLock(Path("lock")):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_nobody_holds_a_lock_that_nobody_took(tmp_path):
    path = tmp_path / "lock"
    assert not is_held(path)
    with RunLock(path):
        assert is_held(path)
    assert not is_held(path)


def test_a_second_writer_is_refused_and_told_who_the_first_is(tmp_path, holder):
    assert is_held(tmp_path / "lock")
    with pytest.raises(RunError, match=f"is being written by process {holder.pid}"), RunLock(tmp_path / "lock"):
        pass


@pytest.mark.parametrize("how", ["ends", "is killed"])
def test_the_lock_is_free_when_its_holder(how, tmp_path, holder):
    if how == "ends":
        holder.stdin.close()
    else:
        holder.kill()
    holder.wait(300)
    assert not is_held(tmp_path / "lock")
    with RunLock(tmp_path / "lock"):
        assert (tmp_path / "lock").read_text() == str(os.getpid())


def test_who_only_asks_is_never_in_the_way_of_a_writer(tmp_path):
    path = tmp_path / "lock"
    path.touch()
    over = threading.Event()

    def ask():
        while not over.is_set():
            is_held(path)

    readers = [threading.Thread(target=ask) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(200):
            with RunLock(path):
                pass
    finally:
        over.set()
        for reader in readers:
            reader.join()


def test_the_lock_of_a_killed_holder_is_waited_for_as_long_as_what_it_started_may_write(tmp_path, caplog):
    start = "import subprocess; subprocess.Popen(['sleep', '1'], pass_fds=[lock.descriptor])"
    hold = HOLD.replace('RunLock(Path("lock")):\n', f'RunLock(Path("lock")) as lock:\n    {start}\n')
    with subprocess.Popen(
        [sys.executable, "-c", hold], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "held\n"
        process.kill()
    assert is_held(tmp_path / "lock")
    with RunLock(tmp_path / "lock"):
        assert f"process {process.pid} is gone; waiting until its workers have ended" in caplog.text
