"""`python -m volary.store`: one server process, started by `volary.store.serve`, with which it ends."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from volary.comm.control.connection import Connection
from volary.errors import VolaryError
from volary.store.messages import StoreServerHello
from volary.store.settings import Settings

START_TIMEOUT_S = 30.0


class ServerStart(msgspec.Struct, frozen=True):
    """The register's address, the key that proves us to it, and what to be."""

    host: str
    port: int
    key_file: str
    number: int
    settings: Settings


def main(order: str) -> int:
    """Be a server until the register has gone; returns the exit code."""
    from volary.run.launch.parent import die_with_parent

    try:
        die_with_parent()
        start = msgspec.json.decode(order, type=ServerStart)
        key = bytes.fromhex(Path(start.key_file).read_text())
        hello = msgspec.to_builtins(StoreServerHello(start.number))
        with Connection.open(start.host, start.port, key, "store", hello, timeout_s=START_TIMEOUT_S) as connection:
            from volary.comm.channels.channel import Credentials
            from volary.store.process import run  # imports torch: the register knows of us by now

            own = Credentials(key, connection.attempt_id, start.number, start.settings.security)
            run(start.settings, connection, start.host, own)
    except VolaryError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
