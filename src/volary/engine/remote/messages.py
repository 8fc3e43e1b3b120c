"""Messages between a driver and `python -m volary.remote` over an ssh connection: a line of JSON each."""

from __future__ import annotations

from msgspec import Struct

from volary.engine._base import Role

END, KILL = b"end\n", b"kill\n"  # what follows an order; the end of the connection means END, and KILL a little later


class RemoteLaunch(Struct, frozen=True, kw_only=True):
    """Processes to be started on one machine.

    numbers: theirs; of workers their ranks. world_size: how many there are, on all machines. node: this machine's
    number. folder: where they run. brought_bytes: so many bytes of a tar archive follow, to be unpacked there.
    """

    role: Role
    command: list[str]
    variables: dict[str, str]
    numbers: list[int]
    world_size: int
    node: int
    folder: str
    brought_bytes: int = 0

    def places(self) -> dict[int, dict[str, str]]:
        """What each process finds of its place in its environment (volary.placement.hosts), by its number."""
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
    """All of them run. pids: there, by number."""

    pids: dict[int, int]


class RemoteExited(Struct, frozen=True, tag=True):
    """One of them has ended; see `Exited`."""

    number: int
    code: int
    signal: int | None
    out_of_memory: bool


class MachineFound(Struct, frozen=True, tag=True):
    """What there is. volary: its version. torch: whether it could be imported. folder: whether it is there."""

    volary: str
    torch: bool
    cores: int
    folder: bool
