"""Answer predictions of a trained network over HTTP, for trying it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from volary.cli.command import arguments
from volary.cli.command.output import remark, say
from volary.run.owner import refuse_foreign

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory


@click.command()
@arguments.run
@arguments.overrides
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port; default: any that is free.")
@click.option("--layer", default="", help="Answer with this layer's output instead.")
@arguments.trust
@arguments.checkpoint
def serve(run: RunDirectory, overrides: tuple[str, ...], port: int, layer: str, trust: bool, which: str | None) -> None:
    """Answer HTTP on this machine alone with the network of RUN, until Ctrl-C. Prints a command to try.

    What is sent is read as `volary predict` reads a file of that name. Guide: docs/predicting.md.
    """
    refuse_foreign(run.path, run.session, trust=trust)

    from volary.prediction.serve import PredictionServer
    from volary.prediction.start import PredictionSettings

    server = PredictionServer(
        run, PredictionSettings(checkpoint=which, layer=layer, settings=overrides, device="cpu"), port, remark
    )
    say(f"curl -H 'Authorization: Bearer {server.token}' -T FILE {server.address}/")
    server.run()
