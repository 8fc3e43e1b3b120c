"""Predict with a trained network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from volary.cli.command import arguments
from volary.cli.command.output import remark, say, say_json
from volary.errors import BadInput
from volary.run.owner import refuse_foreign

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory
    from volary.train.predicting.predictions import Predictions

_MOST_NAMED = 5  # of inputs that could not be read


@click.command()
@arguments.run
@click.argument("inputs", metavar="INPUT")
@arguments.overrides
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), required=True, help="A new .csv, .jsonl, .npy or .parquet."
)
@click.option("--layer", default="", help="Write this layer's output instead.")
@click.option("--top", default=0, metavar="N", help="Only the N most probable classes; default: all.")
@click.option("--workers", default=1, metavar="N", help="Processes that share the rows.")
@click.option("--engine", default="local", help="Who starts them, if there are several.")
@click.option("--batch-size", default=0, metavar="N", help="Samples at once; default: found by measuring.")
@arguments.trust
@arguments.checkpoint
@arguments.as_json
def predict(
    run: RunDirectory, inputs: str, overrides: tuple[str, ...], output: Path, trust: bool, as_json: bool, **how: object
) -> None:
    """Predict with RUN from INPUT: an image, a folder of images, a table, an array or a text, without targets.

    INPUT is read as the run's source reads its data, with the same preprocessing, and every row is written once, in its
    order. Settings after INPUT replace those of the run's session.
    """
    refuse_foreign(run.path, run.session, trust=trust)

    from volary.prediction.start import PredictionSettings
    from volary.prediction.start import predict as predicted

    if more := [one for one in overrides if "=" not in one and Path(one).exists()]:
        raise BadInput(f"{more[0]}: accepted: one INPUT, then settings; several files are read from a folder, as INPUT")
    how["checkpoint"] = how.pop("which")
    found = predicted(run, inputs, output, PredictionSettings(settings=overrides, **how), remark)  # type: ignore[arg-type]  # click has checked them
    _tell_lost(found)
    if as_json:
        facts = {"rows": found.rows, "unreadable": len(found.lost), "batch_size": found.batch_size}
        say_json({"run": str(run.path), "file": str(output.absolute()), **facts})
        return
    say(f"wrote {output}: {found.rows:,} rows, up to {found.batch_size} samples at once")


def _tell_lost(found: Predictions) -> None:
    for text in found.remarks:
        remark(text)
    for row in sorted(found.lost)[:_MOST_NAMED]:
        remark(found.lost[row])
    if found.lost:
        remark(f"{len(found.lost):,} of {found.rows:,} inputs could not be read; their rows are empty")
