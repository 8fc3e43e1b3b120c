"""Machines that ssh reaches: nothing has to be installed there but Volary, and nothing listens there."""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

import volary
from volary.engine._base import Handle, Launch, require_restarts
from volary.engine.local import LOOPBACK
from volary.engine.remote.bring import missing, require_below
from volary.engine.remote.messages import MachineFound, RemoteLaunch
from volary.engine.remote.ssh import SshConnection, SshProcesses
from volary.errors import SettingError
from volary.run.machine.addresses import address_towards, is_this_machine
from volary.run.machine.gpus import visible

ANSWER_S = 40.0  # of a machine that is asked what it has
_HOST = re.compile(r"((?:[\w.][\w.-]*@)?(?:[A-Za-z0-9][\w.-]*|\[[0-9A-Fa-f:.]+\]))(?::([1-9][0-9]*))?")
_REMOTE = ["-P", "-m", "volary.machine_agent"]  # -P: what lies in the home folder there is not imported
_OPTIONS = {
    "BatchMode": "yes",  # nobody is there to be asked for a password
    "ConnectTimeout": "10",
    "ServerAliveInterval": "3",  # a machine that is cut off is noticed, as its heartbeats are
    "ServerAliveCountMax": "3",
    "ClearAllForwardings": "yes",
    "LogLevel": "ERROR",
}


@dataclass(frozen=True, kw_only=True)
class HostsEngine:
    """Workers and servers run on these machines, on each as children of a process that the driver starts by ssh."""

    hosts: tuple[str, ...] = ()  # machines, each as ssh has it, with slots: alpha, user@beta, gamma:2, [fd00::2]:2
    python: str = ""  # the Python there that has Volary; empty: at the path of this one
    folder: str = ""  # the working directory there; empty: at the path of this one
    bring: tuple[str, ...] = ()  # folders or files here that are copied into that folder before the start
    ssh: str = "ssh"  # the client, with options of it if need be: ssh -F my_config
    cores: tuple[int, ...] = ()  # of each machine, by number: what runs there stays on these; empty: all that it has
    gpus: tuple[int, ...] | None = None  # of each machine, by number: what runs there has these; null: all that it has
    pin: bool = True  # each worker stays on its own share of the cores of its machine
    max_restarts: int = 0  # times that the run is resumed by itself after the loss of a process

    def __post_init__(self) -> None:
        require_restarts(self.max_restarts)
        require_machines("hosts", self.hosts)
        require_below(self.bring)
        for name, what, numbers in (("cores", "cores", self.cores), ("gpus", "GPUs", self.gpus or ())):
            if any(number < 0 for number in numbers) or len(set(numbers)) < len(numbers):
                raise SettingError(f"{name} is {list(numbers)}; accepted: numbers of {what}, from 0, each once")

    def check(self, workers: int) -> str | None:
        """Check that machines answer, and have Volary of this version, torch, the folder, and slots for all workers."""
        if shutil.which(self._ssh[0]) is None:
            return f"there is no {self._ssh[0]}; on Debian: apt-get install openssh-client"
        if not self.hosts:
            return "engine.hosts names no machine yet, as in engine.hosts=[alpha,beta:2]"
        slots = sum(slots for _, slots in self._hosts)
        if slots < workers:
            return (
                f"strategy.workers is {workers}, and the machines have {slots} slot{'s' * (slots != 1)}: add machines, "
                "or slots (name:4)"
            )
        if (reason := missing(self.bring)) is not None:
            return reason
        refused = [found for found in self._found() if isinstance(found, str)]
        return "; ".join(refused) if refused else None

    def warnings(self, workers: int) -> list[str]:
        """More workers than cores on a machine."""
        warnings = []
        for (name, slots), found in zip(self._hosts, self._found(), strict=True):
            usable = len(self.cores or found.cores) if isinstance(found, MachineFound) else slots
            if slots > usable:
                warnings.append(
                    f"{name} has {slots} slots, and {usable} cores are usable there: workers take turns on them"
                )
        return warnings

    def host(self) -> str:
        """Loopback if all are this machine; else this machine's address on the route to the first of the others."""
        names = [self._address(name) for name, _ in self._hosts]
        others = [name for name in names if not is_this_machine(name)]
        return address_towards(others[0]) if others else LOOPBACK

    def command(self, launch: Launch) -> list[str]:
        """The ssh to the first machine; those to the others differ in the name alone."""
        return self._command(self._hosts[0][0])

    def prepare(self, workers: int) -> None:
        """Do nothing: the machines begin when they are reached."""

    def launch(self, launch: Launch, *, launcher: Sequence[str] = ()) -> Handle:
        """Start them, by an ssh for each machine that has any of them. What these print is in logs of their own.

        launcher: a command that starts the workers of one machine, to be followed by how many, and by theirs.
        """
        brought = self._brought(launch.directory.path.parent) if self.bring else None
        connections: list[SshConnection] = []
        try:
            for node, (name, numbers) in enumerate(self._shares(launch, in_a_row=bool(launcher))):
                order = self._order(launch, node, numbers, brought, launcher)
                log = launch.directory.logs / f"ssh-{name}-{launch.role}s.log"
                connections.append(SshConnection(f"ssh {name}", self._command(name), order, log, brought))
        except BaseException:
            SshProcesses(connections).stop(0.0)
            raise
        return SshProcesses(connections)

    @functools.cached_property
    def _hosts(self) -> list[tuple[str, int]]:
        """Each machine as ssh takes it, and its slots."""
        return [(re.sub(r"[][]", "", name), slots or 1) for name, slots in map(machine_and_slots, self.hosts)]

    @functools.cached_property
    def _ssh(self) -> list[str]:
        return shlex.split(self.ssh) or ["ssh"]

    def _shares(self, launch: Launch, *, in_a_row: bool = False) -> list[tuple[str, list[int]]]:
        """The numbers of processes, for each machine that gets any. Workers fill slots, servers go around.

        in_a_row: the first goes to the first machine, so that those of each follow each other.
        """
        slots = [name for name, slots in self._hosts for _ in range(slots if launch.role == "worker" else 1)]
        numbers: dict[str, list[int]] = {}
        for number in launch.numbers:
            at = number - launch.first if in_a_row else number
            numbers.setdefault(slots[at % len(slots)], []).append(number)
        return [(name, numbers[name]) for name in dict.fromkeys(slots) if name in numbers]

    def _order(
        self, launch: Launch, node: int, numbers: list[int], brought: IO[bytes] | None, launcher: Sequence[str]
    ) -> RemoteLaunch:
        return RemoteLaunch(
            role=launch.role,
            launcher=self._there(launcher),
            command=self._there(launch.command),
            variables=launch.variables_elsewhere() | {"VOLARY_PIN": str(int(self.pin))} | visible(self.gpus),
            numbers=numbers,
            world_size=launch.first + launch.count,
            node=node,
            folder=self._folder,
            brought_bytes=0 if brought is None else brought.tell(),
            cores=list(self.cores),
        )

    def _brought(self, runs: Path) -> IO[bytes]:
        """An archive of what is to be brought, without runs and what Python has compiled; it is at its end."""

        def wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
            path = Path(entry.name)
            return None if path.name == "__pycache__" or path.absolute() == runs else entry

        archive = tempfile.TemporaryFile()  # noqa: SIM115  # read as long as connections send it, and closed with them
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for path in self.bring:
                tar.add(path, filter=wanted)
        archive.seek(0, os.SEEK_END)
        return archive

    def _there(self, command: Sequence[str]) -> list[str]:
        """The command with the Python of the machines."""
        return [self._python if word == sys.executable else word for word in command]

    @property
    def _python(self) -> str:
        return self.python or sys.executable

    @property
    def _folder(self) -> str:
        return self.folder or str(Path.cwd())

    def _command(self, name: str, *arguments: str) -> list[str]:
        options = [word for key, value in _OPTIONS.items() for word in ("-o", f"{key}={value}")]
        # one shell word more would be the login shell's to split
        return [*self._ssh, "-T", *options, "--", name, "exec " + shlex.join([self._python, *_REMOTE, *arguments])]

    def _address(self, name: str) -> str:
        """The address that ssh connects to for this name, by its configuration."""
        answer = _answer_of([*self._ssh, "-G", "--", name])
        words = dict(line.split(" ", 1) for line in answer.stdout.splitlines() if " " in line)
        return words.get("hostname", name.rpartition("@")[2])

    def machines(self, folders: Sequence[str]) -> list[MachineFound | str]:
        """Ask all machines at once what they have, and which of the folders; a sentence says why one cannot be used."""
        with ThreadPoolExecutor(min(32, len(self._hosts) or 1)) as pool:
            return list(pool.map(lambda host: self._look(host[0], folders), self._hosts))

    def _found(self) -> Sequence[MachineFound | str]:
        """The same for a run: it needs its folder there, and its cores."""
        return [
            found if isinstance(found, str) else self._lacks(name, found) or found
            for (name, _), found in zip(self._hosts, self.machines([self._folder]), strict=True)
        ]

    def _lacks(self, name: str, found: MachineFound) -> str:
        if not found.folders and not self.bring:
            return (
                f"{name} has no folder {self._folder}, where the session's code would be: with engine hosts "
                "engine.folder names another one, engine.bring copies it there"
            )
        wanted = (("cores", "cores", self.cores, found.cores), ("gpus", "GPUs", self.gpus or (), found.gpus))
        for setting, what, numbers, there in wanted:
            if missing_there := [number for number in numbers if number not in there]:
                has = f"the {what} {', '.join(map(str, there))}" if there else f"no {what}"
                return f"engine.{setting} has {missing_there[0]}, and {name} has {has}"
        return ""

    def _look(self, name: str, folders: Sequence[str]) -> MachineFound | str:
        answer = _answer_of(self._command(name, "--look", *folders))
        try:
            found = msgspec.json.decode(answer.stdout.strip().rpartition("\n")[2], type=MachineFound)
        except msgspec.MsgspecError:
            return f"{name}: {self._why(name, answer)}"
        if found.volary != volary.__version__:
            return f"{name} has Volary {found.volary}, and here it is {volary.__version__}: install the same"
        if not found.torch:
            return f"{name} has Volary without torch: install it there with its dependencies"
        return found

    def _why(self, name: str, answer: subprocess.CompletedProcess[str]) -> str:
        last = (answer.stderr.strip() or f"status {answer.returncode}").splitlines()[-1]
        if answer.returncode == 255:  # ssh's own
            return f"{last} (`{shlex.join([*self._ssh, name, 'true'])}` must work without a question)"
        return f"{last}; install Volary there, or name the Python that has it: engine=hosts engine.python=PATH"


def machine_and_slots(host: str) -> tuple[str, int | None]:
    """A machine as ssh has it, and its slots; None if they are left out. Raises SettingError for what is no machine."""
    require_machines("hosts", (host,))
    found = _HOST.fullmatch(host)
    assert found is not None
    return found[1], int(found[2]) if found[2] else None


def require_machines(setting: str, machines: Sequence[str]) -> None:
    """Raise SettingError for what is no machine."""
    for machine in machines:
        if not _HOST.fullmatch(machine):
            raise SettingError(
                f"{setting} has {machine!r}; accepted: machines as ssh has them, each with its slots if there are "
                "several: alpha, user@beta:2, [fd00::2]:4"
            )


def _answer_of(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ANSWER_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return subprocess.CompletedProcess(command, 255, "", str(error))


ENGINE = HostsEngine
