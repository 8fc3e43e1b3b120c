"""Launchers in general: what is left of one that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import psutil

from engine.test_every_engine import gone, wait_until
from engine.test_hosts import launch
from volary.engine.launchers.launched import Launched
from volary.run.directory import RunDirectory
from volary.run.machine import descendants


def test_what_a_killed_launcher_has_started_is_ended_with_the_run():
    directory = RunDirectory.create(Path("runs"), "it", "x", "network: lenet\n")
    command = ["sh", "-c", "sleep 600 & echo $! > draft; mv draft started; wait"]
    handle = Launched("sh", launch(1, directory=directory), command, {})
    try:
        wait_until(Path("started").exists)
        left = int(Path("started").read_text())
        os.kill(handle.children()[0], signal.SIGKILL)
        wait_until(handle.ended)
        assert not gone(left), "nobody has ended it yet"
    finally:
        handle.stop(0.0)
    wait_until(lambda: gone(left))


def test_a_process_that_has_ended_is_not_waited_for_though_its_parent_never_asks_after_it(monkeypatch):
    monkeypatch.setattr(descendants, "KILLED_WITHIN_S", float("inf"))
    with subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; exec sleep 600"], stdout=subprocess.PIPE) as popen:
        parent, left = psutil.Process(popen.pid), psutil.Process(int(popen.stdout.readline()))
        try:
            wait_until(lambda: parent.name() == "sleep")  # the shell would have asked
            descendants.end([left])
            assert left.status() == psutil.STATUS_ZOMBIE
        finally:
            descendants.end([left, parent])
