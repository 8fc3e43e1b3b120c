"""Bring runs and workers together on a machine that both reach."""

from __future__ import annotations

import click

from volary.cli.command.output import remark, say
from volary.errors import BadInput


@click.command()
@click.option("--listen", required=True, metavar="HOST:PORT", help="An address of this machine, and the port.")
@click.option("--public", metavar="HOST:PORT", help="Where others reach that, if it is elsewhere: a router's, say.")
def relay(listen: str, public: str | None) -> None:
    """Bring runs and workers together that cannot reach each other, until Ctrl-C. Both connect to this machine.

    Prints the token that `volary gate RUN --relay TOKEN` takes. What goes through is encrypted between the two ends:
    this machine sees none of it. Whoever has the token may use the relay; there is a new one with each start.
    """
    import secrets

    from volary.comm.relay.relay import Relay
    from volary.driver.interrupts import Interrupts
    from volary.run.launch.way import RELAY, Way, host_and_port

    host, port = host_and_port("--listen", listen)
    there = (host, port) if public is None else host_and_port("--public", public)
    key = secrets.token_bytes(32)
    one = Relay(key, host, port)
    try:
        one.start()
    except OSError as error:
        raise BadInput(f"--listen {listen}: {error.strerror or error}") from None
    try:
        with Interrupts() as asked:
            say(f"{RELAY}{Way(*there, key=key)}")
            remark(f"the relay is at {there[0]}:{there[1]}; where the run is: volary gate RUN --relay TOKEN")
            while not asked.count:
                asked.wait(60.0)
    finally:
        one.close()
