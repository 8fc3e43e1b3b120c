"""Machines reached by ssh: which process goes where, what is run there, and what is refused before anything starts."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from faults._running import running, session
from volary.engine._base import Launch
from volary.engine.hosts import HostsEngine
from volary.errors import SettingError
from volary.run.directory import RunDirectory
from volary.run.launch.meeting import Meeting


def launch(count: int, **more: object) -> Launch:
    meeting = Meeting("10.0.0.1", 1234, attempt=0, attempt_id="one")
    command = [sys.executable, "-m", "volary.worker"]
    values = {"role": "worker", "directory": RunDirectory("runs/it"), "command": command, "meeting": meeting}
    return Launch(count=count, **values | more)  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "a b", "alpha:0", "alpha:", "", "user@", "@alpha", "-u@alpha"])
def test_host_that_is_none_is_refused(host):
    with pytest.raises(SettingError, match=r"hosts has .*; accepted: machines as ssh has them"):
        HostsEngine(hosts=(host,))


@pytest.mark.parametrize("path", ["/etc", "../code", "lib/../.."])
def test_only_what_is_below_the_working_directory_can_be_brought(path):
    with pytest.raises(SettingError, match=r"bring has .*; accepted: folders and files below the working directory"):
        HostsEngine(bring=(path,))


def test_workers_fill_the_slots_of_each_machine_in_turn_and_those_that_join_go_on_after_them():
    engine = HostsEngine(hosts=("alpha", "user@beta:2", "[fd00::2]:2"))
    assert engine._shares(launch(4)) == [("alpha", [0]), ("user@beta", [1, 2]), ("fd00::2", [3])]
    assert engine._shares(launch(2, first=4)) == [("alpha", [5]), ("fd00::2", [4])]


def test_servers_go_around_the_machines_whatever_their_slots():
    engine = HostsEngine(hosts=("alpha:8", "beta"))
    assert engine._shares(launch(3, role="server")) == [("alpha", [0, 2]), ("beta", [1])]


def test_command_asks_no_question_takes_no_option_from_a_name_and_holds_nothing_of_the_run():
    engine = HostsEngine(hosts=("user@beta:2",), ssh="ssh -F 'my config'", python="/opt/my python")
    command = engine.command(launch(2))
    assert command[:3] == ["ssh", "-F", "my config"]
    assert "BatchMode=yes" in command
    assert command[-3:-1] == ["--", "user@beta"]
    assert shlex.split(command[-1]) == ["exec", "/opt/my python", "-P", "-m", "volary.machine_agent"]


def test_too_few_slots_and_what_cannot_be_brought_are_refused_without_asking_a_machine():
    few = HostsEngine(hosts=("alpha", "beta:2"), ssh=sys.executable)
    assert few.check(4) == "strategy.workers is 4, and the machines have 3 slots: add machines, or slots (name:4)"
    one = HostsEngine(hosts=("alpha",), ssh=sys.executable)
    assert one.check(2) == "strategy.workers is 2, and the machines have 1 slot: add machines, or slots (name:4)"
    absent = HostsEngine(hosts=("alpha",), ssh=sys.executable, bring=("lib",))
    assert absent.check(1) == "engine.bring has lib, and there is no such file or folder here"


def test_missing_client_and_missing_hosts_are_told_with_what_to_do():
    assert HostsEngine(hosts=("alpha",), ssh="no-such-ssh").check(1) == (
        "there is no no-such-ssh; on Debian: apt-get install openssh-client"
    )
    assert HostsEngine(ssh=sys.executable).check(1) == (
        "engine.hosts names no machine yet, as in engine.hosts=[alpha,beta:2]"
    )


def test_machine_that_ssh_does_not_reach_is_named_with_the_words_of_ssh():
    Path("ssh").write_text("#!/bin/sh\necho 'ssh: Could not resolve hostname alpha' >&2\nexit 255\n")
    Path("ssh").chmod(0o755)
    refused = HostsEngine(hosts=("alpha", "beta"), ssh=str(Path("ssh").absolute())).check(2)
    assert refused is not None
    assert refused.startswith("alpha: ssh: Could not resolve hostname alpha (`")
    assert "; beta: ssh: Could not" in refused


@pytest.mark.slow  # needs an sshd
def test_code_is_brought_to_a_folder_that_was_not_there_and_logs_name_the_machines(hosts):
    file = session(steps=20)
    there = Path("elsewhere") / "on alpha"
    options = ["engine=hosts", "engine.hosts=[alpha,beta]", "engine.ssh=ssh -F ssh_config", "engine.bring=[net.py]"]
    with running(sys.executable, "-m", "volary", "train", file, *options, f"engine.folder={there.absolute()}") as run:
        assert run.ended().status == 0, run.text()
    assert [path.name for path in there.iterdir() if path.suffix == ".py"] == ["net.py"]
    logs = {path.name for path in run.directory.logs.iterdir()}
    assert {"ssh-alpha-workers.log", "ssh-beta-workers.log", "worker-0.log", "worker-1.log"} <= logs


@pytest.mark.slow  # needs an sshd
def test_python_without_volary_and_a_folder_that_is_not_there_are_refused_by_the_name_of_the_machine(hosts):
    def refused(**settings: str) -> str:
        found = HostsEngine(hosts=("alpha",), ssh="ssh -F ssh_config", **settings).check(1)
        assert found is not None
        return found

    assert refused(python="/no/python").endswith(
        "install Volary there, or name the Python that has it: engine=hosts engine.python=PATH"
    )
    assert refused(folder="/no/such").startswith("alpha has no folder /no/such, where the session's code would be")
