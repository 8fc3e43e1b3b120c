"""However a lab ends, no process, namespace or link of it is left."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import psutil
import pytest

from volary.lab import Lab

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("allowed")]

MAKER = """
import subprocess, sys
from volary.lab import Lab
with Lab(hosts=2, rate="100mbit") as lab:
    lab.start(0, ["sh", "-c", "setsid -f sleep 300; trap '' TERM INT; sleep 300"])  # one that would outlive it
    lab.start(1, ["sh", "-c", "kill -STOP $$"])
    while "sleep" not in lab.output(0, ["sh", "-c", "cat /proc/[0-9]*/comm 2>/dev/null || :"]): pass
    print("open", flush=True)
    {then}
"""


def namespaces() -> set[str]:
    """All that this process is in, or one that it has started or adopted: other tests may have labs of their own."""
    found = set()
    for process in living([os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))]):
        for kind in ("net", "mnt", "uts", "ipc", "pid", "user"):
            try:
                found.add(str(Path(f"/proc/{process}/ns/{kind}").readlink()))
            except OSError:
                continue
    return found


def links() -> set[str]:
    return {device.name for device in Path("/sys/class/net").iterdir()}


def wait_until(condition, at_most_s=60):
    until = time.monotonic() + at_most_s
    while not condition():
        assert time.monotonic() < until, "something is left"
        time.sleep(0.02)


def living(pids: Iterable[int]) -> set[int]:
    def lives(pid):
        try:
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    return set(filter(lives, pids))


@pytest.mark.parametrize(
    ("then", "end", "status"),
    [
        ("pass", None, 0),
        ("raise SystemExit(lab.run(['sh', '-c', 'exit 3']).status)", None, 3),
        ("raise SystemExit(lab.run(['sleep', '300'], timeout_s=0.2).status)", None, 124),
        ("lab.run(['sleep', '300'])", signal.SIGINT, -signal.SIGINT),
        ("lab.run(['sleep', '300'])", signal.SIGTERM, -signal.SIGTERM),
        ("lab.run(['sleep', '300'])", signal.SIGKILL, -signal.SIGKILL),
    ],
    ids=["normal", "failing-rank", "timeout", "SIGINT", "SIGTERM", "SIGKILL"],
)
def test_nothing_is_left_after(then, end, status):
    namespaces_before, links_before = namespaces(), links()
    with subprocess.Popen([sys.executable, "-c", MAKER.format(then=then)], stdout=subprocess.PIPE, text=True) as maker:
        assert maker.stdout.readline() == "open\n"
        inside = {child.pid for child in psutil.Process(maker.pid).children(recursive=True)}
        assert links() == links_before, "the lab's links are not in the machine's own network"
        if end is not None:
            assert len(namespaces() - namespaces_before) >= 11  # 2 hosts with 5 each, and the switches' network
            maker.send_signal(end)
        maker.wait(60)
    assert maker.returncode == status
    wait_until(lambda: not living(inside) and namespaces() <= namespaces_before)
    assert links() == links_before


def test_a_child_that_its_maker_forked_does_not_keep_a_killed_lab_alive():
    then = "import os, time; child = os.fork(); child or time.sleep(300); print(child, flush=True); time.sleep(300)"
    before = namespaces()
    with subprocess.Popen([sys.executable, "-c", MAKER.format(then=then)], stdout=subprocess.PIPE, text=True) as maker:
        assert maker.stdout.readline() == "open\n"
        child = int(maker.stdout.readline())
        try:
            maker.kill()
            wait_until(lambda: namespaces() <= before)
            assert psutil.pid_exists(child)
        finally:
            os.kill(child, signal.SIGKILL)


def test_nothing_is_left_when_a_lab_cannot_be_finished(monkeypatch):
    def refuse(*_):
        raise OSError("no more")

    before = namespaces()
    monkeypatch.setattr("volary.lab.cluster.LabLinks", refuse)
    with pytest.raises(OSError, match="no more"), Lab(hosts=2):
        pass
    wait_until(lambda: namespaces() <= before)
