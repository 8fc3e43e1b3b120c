"""Machines that do not see the run's directory: logs, values and checkpoints come home, and runs resume from there."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import _sshd
from faults._running import VOLARY, events, last_step, outcome, running, session, state
from volary.run.checkpoints import Checkpoints

pytestmark = pytest.mark.slow  # needs an sshd
STEPS = 60
THERE = "/mnt/volary"


def why_not() -> str:
    if os.geteuid() != 0:
        return "a file system of its own for sshd needs root"
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return _sshd.why_not() or ("unshare --mount is not allowed here" if tried.returncode else "")


@pytest.fixture
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Settings of the engine: two machines that do not see the current folder, nor what else is in /tmp."""
    if reason := why_not():
        pytest.skip(reason)
    hidden = 'mount -t tmpfs none /mnt && mount -t tmpfs none "$0" && exec "$@"'
    wrapper = ("unshare", "--mount", "sh", "-c", hidden, str(Path.cwd()))
    with _sshd.sshd(tmp_path_factory.mktemp("sshd"), *wrapper) as config:
        shutil.copy(config, "ssh_config")
        yield [
            "engine=hosts",
            "engine.hosts=[alpha,beta]",
            "engine.ssh=ssh -F ssh_config",
            f"engine.folder={THERE}",
            "engine.bring=[net.py]",
        ]


def train(file: str, *overrides: str) -> list[str]:
    return [*VOLARY, "train", file, *overrides]


def test_logs_events_and_checkpoints_of_machines_that_do_not_see_the_run_are_in_its_directory(apart):
    with running(*train(session(steps=STEPS), *apart, f"checkpoint.path={Path('large').absolute()}")) as run:
        assert run.ended().status == 0, run.text()
    assert run.directory.checkpoints.resolve() == Path("large/it").absolute()
    assert (state(run.directory), last_step(run.directory)) == ("finished", STEPS)
    checkpoints = Checkpoints(run.directory.checkpoints)
    assert checkpoints.steps() == [20, 40, 60]
    assert {checkpoints.verify(step).world_size for step in checkpoints.steps()} == {2}
    assert [event.data["step"] for event in events(run.directory, "checkpoint")] == [20, 40, 60]
    assert [path.name for path in run.directory.checkpoints.iterdir() if path.name.startswith(".")] == []


def test_run_whose_machines_see_nothing_of_it_is_stopped_and_resumed_bit_for_bit(apart):
    file = session(steps=STEPS, pace_s=0.03)
    with running(*train(file, *apart, "run.name=whole"), name="whole") as whole:
        assert whole.ended().status == 0, whole.text()
    with running(*train(file, *apart)) as run:
        run.wait_for_step(25)
        run.process.send_signal(signal.SIGINT)
        ended = run.ended(gone_within_s=10)
        assert (ended.status, state(run.directory)) == (130, "stopped"), run.text()
    with running(*VOLARY, "resume", "it") as again:
        assert again.ended().status == 0, again.text()
    assert outcome(run.directory) == outcome(whole.directory)


def test_what_a_process_printed_before_it_was_killed_is_in_its_log(apart):
    with running(*train(session(fault="print and die"), *apart)) as run:
        ended = run.ended()
    assert ended.status == 4, run.text()
    assert "the last words of rank 1" in run.directory.log(1).read_text()


def test_driver_that_is_killed_leaves_no_process_on_the_machines_and_a_run_that_can_be_resumed(apart):
    with running(*train(session(pace_s=0.02), *apart)) as run:
        run.wait_for_step(25)
        run.process.kill()
        ended = run.ended(gone_within_s=15)
    assert re.search(r"^resume from step \d+: volary resume it$", ended.err, re.MULTILINE), ended.err


def test_servers_and_workers_of_a_served_run_send_their_parts_of_a_checkpoint(apart):
    file = session(steps=40, consistency="bsp", exchange="{name: server, servers: 2}")
    with running(*train(file, *apart)) as run:
        assert run.ended().status == 0, run.text()
    checkpoints = Checkpoints(run.directory.checkpoints)
    names = checkpoints.verify(checkpoints.steps()[-1]).files
    assert {"rank-0.pt", "rank-1.pt"} <= names.keys() or any("server-1" in name for name in names)
    assert run.directory.server_log(0).exists()


LOOP = """
import sys

import yaml

import volary

def train(worker):
    return worker.rank

if __name__ == "__main__":
    engine = {"name": "hosts", **{k: yaml.safe_load(v) for k, v in (one.split("=") for one in sys.argv[1:])}}
    print(volary.launch(train, workers=2, engine=engine).values)
"""


def test_values_of_a_loop_of_one_s_own_come_back(apart):
    Path("loop.py").write_text(LOOP)
    settings = [one.removeprefix("engine.").replace("net.py", "loop.py") for one in apart[1:]]
    with running(sys.executable, "loop.py", *settings, name="train-1") as run:
        ended = run.ended()
    assert ended.status == 0, run.text()
    assert ended.out.splitlines()[-1] == "[0, 1]"
