"""A lab: hosts and links that exist as long as this object is open, and not a moment longer."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from volary.errors import SettingError
from volary.lab.board import meeting
from volary.lab.errors import LabError
from volary.lab.jobs import Job
from volary.lab.needs import needs_user_namespace
from volary.lab.network.distance import Distance
from volary.lab.network.links import Counters, LabLinks
from volary.lab.network.namespaces import Namespaces
from volary.lab.network.rates import parse
from volary.lab.network.topology import LabTopology, Rate
from volary.lab.parent_pipe import ParentPipe
from volary.lab.ranks import Ranks, RanksEnded, places
from volary.lab.timeline import LinkChange, Timeline
from volary.run.machine.cores import cores_each, cores_here, share_of

GRACE_S = 2.0
_HOST_KINDS = ("net", "uts", "ipc", "mount", "pid")
# the lab speaks IPv4 alone: no device announces itself, and the counters count what programs send
_NET_SETUP = "echo 1 2>/dev/null >/proc/sys/net/ipv6/conf/default/disable_ipv6 || :\n"
# /sys shows the network devices of who mounts it; where that is not allowed, programs see the machine's
_HOST_SETUP = f"""{_NET_SETUP}
hostname "$1"
mount -t sysfs sysfs /sys 2>/dev/null || :
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
printf '%s' "$2" > /dev/shm/hosts
mount --bind /dev/shm/hosts /etc/hosts
rm /dev/shm/hosts
"""


class Lab:
    """An emulated cluster: `with Lab(hosts=4, rate="1gbit") as lab: ...`. For one thread.

    rate: of each host's link, in both directions, as in "100mbit" (None: no limit). rates: one per host instead. slow:
    other rates for some hosts. groups: switches that the hosts are spread over, in equal blocks; trunk: the rate from
    each to the core. round_trip: between any two hosts, as in "50ms". loss: of packets on that way, as in "5%".
    Raises SettingError if these do not fit; entering raises LabError where there cannot be a lab.
    """

    def __init__(
        self,
        hosts: int = 2,
        rate: Rate = None,
        *,
        rates: Sequence[Rate] | None = None,
        slow: Mapping[int, Rate] | None = None,
        groups: int = 1,
        trunk: Rate = None,
        round_trip: str | None = None,
        loss: str | None = None,
    ) -> None:
        self.topology = LabTopology.of(hosts, rate, rates, slow, groups, trunk, Distance.of(round_trip, loss))
        self._leash: ParentPipe | None = None
        self._spaces: list[Namespaces] = []  # all, in the order in which they were made
        self._hosts: list[Namespaces] = []
        self._jobs: list[Job] = []
        self._made: LabLinks | None = None

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(
        self,
        command: Sequence[str],
        *,
        procs: int = 1,
        env: Mapping[str, str] | None = None,
        at: Iterable[LinkChange | str] = (),
        timeout_s: float | None = None,
        log_dir: Path | str | None = None,
        pin: bool = False,
        say: Callable[[str], None] | None = None,
    ) -> RanksEnded:
        """Run a command as `procs` ranks on every host, in the current folder; the first failure ends all.

        Each rank has torchrun's variables (see docs/lab.md), and `env`. at: changes on the way ("10s:cut:3"), of which
        `say` is told. log_dir: where each rank writes `rank-N.log`; None: all write to our output. pin: each rank stays
        on its share of the cores. Raises SettingError, and LabError if a change is refused.
        """
        timeline = Timeline(at, self.topology)
        with ExitStack() as logs:
            outputs = [logs.enter_context(log.open("wb")) for log in _logs(log_dir, self.topology.hosts * procs)]
            place = logs.enter_context(meeting())
            environment, keep = place.environment | dict(env or {}), [place.descriptor]
            with self.launch(command, procs=procs, env=environment, outputs=outputs, keep=keep, pin=pin) as ranks:
                return ranks.follow(self, timeline, timeout_s, say=say)

    def launch(
        self,
        command: Sequence[str],
        *,
        procs: int = 1,
        env: Mapping[str, str] | None = None,
        outputs: Sequence[IO[bytes]] = (),
        keep: Sequence[int] = (),
        pin: bool = False,
        grace_s: float = GRACE_S,
        linger_s: float | None = 0.0,
    ) -> Ranks:
        """Start a command as `procs` ranks on every host. For the arguments see `run`, `Job` and `Ranks`.

        outputs: where each rank writes, by rank; none: to our output.

        Raises SettingError for arguments that do not fit.
        """
        if procs < 1:
            raise SettingError(f"procs is {procs}; accepted: 1 or more")
        cores, everyone = cores_here(), places(self.topology.hosts, procs)
        threads = {"OMP_NUM_THREADS": str(max(1, len(cores) // len(everyone)))} | _given("OMP_NUM_THREADS")
        threads |= cores_each(cores, len(everyone))
        jobs: list[Job] = []
        try:
            for place in everyone:
                variables = threads | place.environment(self.topology) | dict(env or {})
                share = share_of(cores, place.rank, place.world_size) if pin else None
                output = outputs[place.rank] if outputs else None
                jobs.append(self.start(place.host, command, variables, output, share, keep))
        except BaseException:
            Ranks(jobs, 0.0).__exit__(None, None, None)
            raise
        return Ranks(jobs, grace_s, linger_s)

    def start(
        self,
        host: int,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        output: IO[bytes] | int | None = None,
        cores: Sequence[int] | None = None,
        keep: Sequence[int] = (),
    ) -> Job:
        """Start a command on one host, in the current folder. It ends with the lab at the latest. See `Job`."""
        self._links()
        job = Job(self._hosts[self.topology.check_host(host)], command, env or {}, output, cores, keep)
        self._jobs.append(job)
        return job

    def output(self, host: int, command: Sequence[str], *, timeout_s: float = 30.0) -> str:
        """Return what a command prints on one host. Raises LabError with the output if it fails or takes longer."""
        with tempfile.TemporaryFile() as printed:
            job = self.start(host, command, output=printed)
            status = job.wait(timeout_s)
            job.close()
            printed.seek(0)
            text = printed.read().decode(errors="replace")
        if status != 0:
            how = f"did not end within {timeout_s:g} s" if status is None else f"ended with status {status}"
            raise LabError(f"{' '.join(command)} on host {host} {how}: {text.strip()}")
        return text

    def set_rate(self, host: int, rate: Rate) -> None:
        """Limit both directions of a host's link from now on, as in "50mbit"; None: no limit."""
        self._links().set_rate(self.topology.check_host(host), parse(rate))

    def set_trunk(self, group: int, rate: Rate) -> None:
        """Limit both directions of a group's trunk from now on; None: no limit."""
        self._links().set_trunk(self.topology.check_group(group), parse(rate))

    def cut(self, host: int) -> None:
        """Pull a host's cable out: what is under way is lost, and nobody is told."""
        self._links().set_up(self.topology.check_host(host), up=False)

    def restore(self, host: int) -> None:
        """Plug a host's cable in again; connections that have not given up go on."""
        self._links().set_up(self.topology.check_host(host), up=True)

    def counters(self, host: int) -> Counters:
        """Count what has passed a host's link since the lab began; `after - before` is what passed in between."""
        return self._links().counters(self.topology.check_host(host))

    def close(self) -> None:
        """End everything in the lab, and wait until it is gone. Harmless when repeated."""
        if self._leash is not None:
            self._leash.let_go()
        for space in self._spaces:
            space.close()
        for job in self._jobs:
            job.close()
        self._made = self._leash = None
        self._spaces, self._hosts, self._jobs = [], [], []

    def _make(self) -> None:
        if self._leash is not None:
            raise LabError("the lab is open already")
        self._leash = ParentPipe()
        outer = self._space(["user"]) if needs_user_namespace() else None
        switch = self._space(["net"], _NET_SETUP, outer=outer)
        names = [f"{self.topology.address(host)} {self.topology.name(host)}\n" for host in range(self.topology.hosts)]
        known = "".join(["127.0.0.1 localhost\n", *names])
        for host in range(self.topology.hosts):
            self._hosts.append(self._space(_HOST_KINDS, _HOST_SETUP, (self.topology.name(host), known), outer))
        self._made = LabLinks(self.topology, switch, self._hosts, self._leash)

    def _space(
        self, kinds: Sequence[str], setup: str = "", arguments: Sequence[str] = (), outer: Namespaces | None = None
    ) -> Namespaces:
        assert self._leash is not None
        self._spaces.append(Namespaces(self._leash, kinds, setup, arguments, outer))
        return self._spaces[-1]

    def _links(self) -> LabLinks:
        if self._made is None:
            raise LabError("the lab is not open: use it as `with Lab(...) as lab:`")
        return self._made


def _logs(folder: Path | str | None, ranks: int) -> list[Path]:
    if folder is None:
        return []
    Path(folder).mkdir(parents=True, exist_ok=True)
    return [Path(folder) / f"rank-{rank}.log" for rank in range(ranks)]


def _given(variable: str) -> dict[str, str]:
    return {variable: os.environ[variable]} if variable in os.environ else {}
