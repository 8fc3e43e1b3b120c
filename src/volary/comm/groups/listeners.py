"""Finds which sockets of which processes listen, and whether anyone beyond this machine can reach them."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class ListeningSocket:
    """A listening TCP socket of a process of this machine."""

    pid: int
    address: str
    port: int

    @property
    def beyond_loopback(self) -> bool:
        """Whether it can be reached from another machine (a firewall aside)."""
        address = ipaddress.ip_address(self.address)
        mapped = getattr(address, "ipv4_mapped", None)
        return not (mapped or address).is_loopback


def listeners(pids: Iterable[int]) -> list[ListeningSocket]:
    """All listening TCP sockets of these processes, in order. Processes that are gone or not ours have none."""
    import psutil  # not needed by `volary --help`

    found = set()
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            for one in psutil.Process(pid).net_connections(kind="tcp"):
                if one.status == psutil.CONN_LISTEN:
                    found.add(ListeningSocket(pid, one.laddr.ip, one.laddr.port))
    return sorted(found)
