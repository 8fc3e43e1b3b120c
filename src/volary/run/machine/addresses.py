"""By which of its addresses this machine is reached."""

from __future__ import annotations

import socket

from volary.errors import BadInput

NOWHERE = "192.0.2.1"  # of no machine (RFC 5737): the route to it is the default one


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
        with socket.socket(family, kind) as plug:
            plug.connect(where)
            return str(plug.getsockname()[0])
    except OSError as error:
        raise BadInput(f"host {host!r} cannot be reached from {socket.gethostname()}: {error.strerror}") from None
