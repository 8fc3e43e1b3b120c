"""A cluster of Slurm's on this machine: real munge, slurmctld and two slurmd, all their files in one folder.

For a command, as root: `python tests/engine/_slurmd.py COMMAND...`, which finds it by SLURM_CONF.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

_PR_SET_CHILD_SUBREAPER = 36
NODES = 2
CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=10
KillWait=5
SchedulerParameters=sched_interval=1,batch_sched_delay=0
StateSaveLocation={folder}/ctld
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs={cores} State=UNKNOWN
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP GraceTime=60
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


def _free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody listens at."""
    while True:
        with contextlib.ExitStack() as open_:
            try:
                first = open_.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
                for port in range(first + 1, first + count):
                    open_.enter_context(socket.create_server(("127.0.0.1", port)))
            except (OSError, OverflowError):
                continue
            return int(first)


@dataclass(frozen=True)
class Cluster:
    """conf: where its configuration is. why_not: why there is none."""

    conf: Path = Path()
    why_not: str = ""


def started(folder: Path, down: contextlib.ExitStack, wrapper: Sequence[str] = ()) -> Cluster:
    """wrapper: a command that starts the second node."""
    missing = [name for name in ("munged", "slurmctld", "slurmd", "srun") if shutil.which(name) is None]
    if missing:
        return Cluster(why_not=f"there is no {', '.join(missing)}; on Debian: apt-get install slurm-wlm munge")
    if os.geteuid() != 0:
        return Cluster(why_not="Slurm's daemons need root")
    conf, first = folder / "slurm.conf", _free_ports(NODES + 1)
    cores = max(2, len(os.sched_getaffinity(0)))
    places = {"port": first, "first": first + 1, "last": first + NODES, "host": socket.gethostname()}
    conf.write_text(CONF.format(folder=folder, nodes=NODES, cores=cores, **places))
    (folder / "ctld").mkdir()
    key = folder / "key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    files = {"socket": "munge.sock", "key-file": "key", "log-file": "munged.log", "pid-file": "munged.pid"}
    munge = [f"--{name}={folder / file}" for name, file in files.items()]
    variables = os.environ | {"SLURM_CONF": str(conf)}
    before = set(psutil.Process().children())

    def run(*command: str) -> str:
        how = {"env": variables, "capture_output": True, "text": True, "timeout": 30, "check": False}
        return subprocess.run(command, **how).stdout

    down.callback(_end, before)
    run("munged", "--force", f"--seed-file={folder / 'seed'}", *munge)
    run("slurmctld", "-c")
    for number in range(1, NODES + 1):
        (folder / f"spool.n{number}").mkdir()
        run(*(wrapper if number == NODES else ()), "slurmd", "-N", f"n{number}")
    until = time.monotonic() + 30
    while run("sinfo", "-h", "-t", "idle", "-o", "%D").strip() != str(NODES):
        if time.monotonic() > until:
            return Cluster(why_not=f"Slurm does not come up here: {(folder / 'slurmctld.log').read_text()[-300:]}")
        time.sleep(0.1)
    return Cluster(conf)


def _end(before: set[psutil.Process]) -> None:
    # daemons have become our children, as we adopt orphans
    daemons = set(psutil.Process().children()) - before
    for process in daemons:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    _, left = psutil.wait_procs(daemons, timeout=20)
    for process in left:
        process.kill()
    psutil.wait_procs(left, timeout=5)


def _stop(command: subprocess.Popen[bytes]) -> None:
    if command.poll() is None:
        command.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            command.wait(20)
        command.kill()


def _terminated(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # `timeout` sends it twice, and the cluster is to be taken down
    raise SystemExit("terminated")


def main() -> int:
    """Run the command in a cluster, which ends with it, and on SIGTERM; its status."""
    signal.signal(signal.SIGTERM, _terminated)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder, contextlib.ExitStack() as down:
        cluster = started(Path(folder), down)
        if cluster.why_not:
            print(cluster.why_not, file=sys.stderr)
            return 2
        command = subprocess.Popen(sys.argv[1:], env=os.environ | {"SLURM_CONF": str(cluster.conf)})
        down.callback(_stop, command)
        return command.wait()


if __name__ == "__main__":
    sys.exit(main())
