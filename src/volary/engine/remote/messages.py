"""Messages between a driver and `python -m volary.machine_agent` over an ssh connection: a line of JSON each."""

from __future__ import annotations

from msgspec import Struct

from volary.engine._base import Role

END, KILL = b"end\n", b"kill\n"  # what follows an order; the end of the connection means END, and KILL a little later


class RemoteLaunch(Struct, frozen=True, kw_only=True):
    """Processes to be started on one machine.

    numbers: theirs; of workers their ranks. world_size: how many there are, on all machines. node: this machine's
    number. folder: where they run. brought_bytes: so many bytes of a tar archive follow, to be unpacked there.
    launcher: if there is one, the command of the process that starts all of them. cores: those of the machine on which
    they stay; empty: all.
    """

    role: Role
    command: list[str]
    variables: dict[str, str]
    numbers: list[int]
    world_size: int
    node: int
    folder: str
    brought_bytes: int = 0
    launcher: list[str] = []
    cores: list[int] = []

    def commands(self) -> dict[int, tuple[list[str], dict[str, str]]]:
        """The commands to start here, by number, each with the environment variables of its place."""
        if self.launcher:  # it counts its processes from 0, and knows of this machine alone
            first, count = self.numbers[0], len(self.numbers)
            place = {"VOLARY_FIRST": str(first), "VOLARY_WORLD_SIZE": str(self.world_size)}
            return {first: ([*self.launcher, str(count), *self.command], place)}
        return {number: (self.command, place) for number, place in self._places().items()}

    def _places(self) -> dict[int, dict[str, str]]:
        """The places, as volary.placement.hosts reads them."""
        return {
            number: {
                "VOLARY_HOSTS_RANK": str(number),
                "VOLARY_HOSTS_WORLD_SIZE": str(self.world_size),
                "VOLARY_HOSTS_LOCAL_RANK": str(local_rank),
                "VOLARY_HOSTS_BESIDE": str(len(self.numbers)),
                "VOLARY_HOSTS_NODE": str(self.node),
            }
            for local_rank, number in enumerate(self.numbers)
        }


class RemoteStarted(Struct, frozen=True, tag=True):
    """Says that all of them run. pids: there, by number."""

    pids: dict[int, int]


class RemoteExited(Struct, frozen=True, tag=True):
    """Says that one of them has ended; see `Exited`."""

    number: int
    code: int
    signal: int | None
    out_of_memory: bool


class MachineFound(Struct, frozen=True, tag=True):
    """A machine's report. volary: its version. torch: whether it could be imported. cores: the numbers of those that
    can be used. memory_bytes: that processes can have; None: not known. folders: those asked for that are there. gpus:
    their numbers; used_gpus: those that some process computes on.
    """

    volary: str
    torch: bool
    cores: list[int]
    memory_bytes: int | None
    folders: list[str]
    gpus: list[int]
    used_gpus: list[int]
