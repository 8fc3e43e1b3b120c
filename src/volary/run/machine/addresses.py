"""Finds by which of its addresses this machine is reached."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

from volary.errors import BadInput

_NOWHERE = "192.0.2.1"  # of no machine (RFC 5737): the route to it is the default one


def is_this_machine(host: str) -> bool:
    """Whether a name or address leads here. Raises BadInput if there is no such host."""
    try:
        where = {str(found[4][0]) for found in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise BadInput(f"host {host!r} is not known to {socket.gethostname()}: {error.strerror}") from None
    return all(address == address_towards(address) for address in where)


def address_towards(host: str) -> str:
    """This machine's address on its route to `host`, a name or an address; nothing is sent.

    Raises BadInput if there is no such host, or no route to it.
    """
    try:
        family, kind, _, _, where = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as sock:
            sock.connect(where)
            return str(sock.getsockname()[0])
    except OSError as error:
        raise BadInput(f"host {host!r} cannot be reached from {socket.gethostname()}: {error.strerror}") from None


def address_for_others() -> str:
    """This machine's address on its default route; without one that of the first interface which is not loopback.

    Raises BadInput if it has loopback alone.
    """
    with suppress(BadInput):
        return address_towards(_NOWHERE)
    for addresses in _interfaces().values():
        for address in addresses:
            if not ip_address(address).is_loopback:
                return address
    raise BadInput(f"{socket.gethostname()} has no network interface but loopback: no other machine can reach it")


def address_of(interface: str) -> str:
    """The address of one of this machine's network interfaces, an IPv4 one if it has any. Raises BadInput."""
    there = _interfaces()
    if not there.get(interface):
        known = ", ".join(sorted(name for name, addresses in there.items() if addresses))
        raise BadInput(f"strategy.interface is {interface!r}; {socket.gethostname()} has addresses on {known}")
    return there[interface][0]


def own_address(interface: str, other: str) -> str:
    """This machine's address: of `interface`, or, where none is named, on the route to `other`."""
    return address_of(interface) if interface else address_towards(other)


def ipv4_addresses() -> list[str]:
    """All of this machine's, with those of loopback."""
    import psutil  # not needed by `volary --help`

    entries = [entry for entries in psutil.net_if_addrs().values() for entry in entries]
    return sorted({entry.address for entry in entries if entry.family == socket.AF_INET})


def _interfaces() -> dict[str, list[str]]:
    """The addresses of each."""
    import psutil  # not needed by `volary --help`

    return {name: _usable(entries) for name, entries in psutil.net_if_addrs().items()}


def _usable(entries: Sequence[Any]) -> list[str]:
    """IPv4 first; addresses of one link alone mean nothing to others without its name."""
    families = (socket.AF_INET, socket.AF_INET6)
    found = [entry for family in families for entry in entries if entry.family == family]
    return [entry.address for entry in found if not entry.address.startswith("fe80:")]
