"""Look at data, pack what a session reads, check it, or sum it up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from volary.cli.command import arguments
from volary.cli.command.output import new_file, remark, say, say_json, say_pairs, say_table
from volary.errors import BadInput
from volary.run.disk import refuse_unwritable
from volary.run.owner import refuse_foreign

if TYPE_CHECKING:
    from volary.data.loading.pipeline import Pipeline
    from volary.data.looking.look import Look
    from volary.data.looking.table_columns import Column
    from volary.data.preparation.survey import Survey
    from volary.data.samples import Samples

SPLITS = ("train", "test")
NAMED = 20  # damaged samples that are printed

_debug = click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")


@click.group()
def data() -> None:
    """Look at data, and after what a session reads from storage: its data.source.

    SESSION is a session file, and NAME=VALUE changes a setting of it: data.source.folder=photos.
    """


@data.command(short_help="Small files into shards.")
@arguments.session
@click.argument("folder", type=click.Path(path_type=Path))
@arguments.overrides
@click.option("--shard-mb", default=64.0, show_default=True, help="MiB of a shard.")
@arguments.trust
@_debug
def pack(session: Path, folder: Path, overrides: tuple[str, ...], shard_mb: float, trust: bool) -> None:
    """Write the images that SESSION reads into shards in FOLDER, which the source `packed` reads.

    Files are copied as they are. If it is stopped, the same command continues with the shard that it was at.
    """
    if not 0 < shard_mb <= 2**14:
        raise BadInput(f"--shard-mb is {shard_mb:g}; accepted: above 0, up to {2**14}")
    refuse_unwritable("FOLDER", folder, make=True)
    opened = _stored(session, overrides, trust)
    from volary.data.decoding.images import ImageDecoder
    from volary.data.loading.transforming import Prepared
    from volary.data.preparation.packing import pack as write
    from volary.monitor.wording import size

    for split, samples in opened.items():
        decoder = samples.decode.decoder if isinstance(samples.decode, Prepared) else samples.decode
        if not isinstance(decoder, ImageDecoder):
            raise BadInput(f"data.source gives {samples.decode.kind} a sample; accepted: a source of image files")
        with _progress(f"{split}: packed", len(samples)) as progress:
            index = write(samples, folder / split, round(shard_mb * 2**20), progress)
        shards = len(index.shards) - 1
        for text in samples.remarks:
            say(text)
        say(f"{folder / split}: {len(samples):,} samples, {size(int(index.sizes.sum()))} in {shards} shards")
    say(f"in the session: data: {{source: {{name: packed, folder: {folder}, ...}}}}")


@data.command(short_help="Decode all, and name what is damaged.")
@arguments.session
@arguments.overrides
@click.option("--list", "listed", type=click.Path(path_type=Path), help="Write the names of damaged samples there.")
@arguments.trust
@_debug
def check(session: Path, overrides: tuple[str, ...], listed: Path | None, trust: bool) -> int:
    """Decode every sample that SESSION reads, and name those that cannot be; of packed ones compare checksums.

    It also says what is there and not read: files beside the samples, further frames of an image, transparency.
    The exit code is 2 if there are some.
    """
    if listed is not None:
        new_file(listed, "--list")
    opened = _opened(session, overrides, trust)
    from volary.data.caching.cached import pipelines
    from volary.data.remarks import remarks_of

    damaged: dict[str, str] = {}
    for split, samples in opened.items():
        # the rest is in memory, and was looked at when it was opened
        surveys = [_surveyed(split, stored, values=False) for stored in pipelines(samples)]
        found = {name: reason for survey in surveys for name, reason in survey.damaged.items()}
        say(f"{split}: {len(samples):,} samples, {len(found):,} damaged")
        for text in [*remarks_of(samples), *(one for survey in surveys for one in survey.dropped_in(split))]:
            say(text)
        damaged |= found
    for name, reason in list(damaged.items())[:NAMED]:
        say(f"{name}: {reason}")
    if len(damaged) > NAMED:
        say("..." if listed else "... --list FILE writes them all")
    if listed is not None:
        listed.write_text("".join(f"{name}\n" for name in damaged), encoding="utf-8", errors="surrogateescape")
    return 2 if damaged else 0


@data.command(short_help="Counts, sizes, mean and deviation, classes.")
@arguments.session
@arguments.overrides
@arguments.as_json
@arguments.trust
@_debug
def stats(session: Path, overrides: tuple[str, ...], as_json: bool, trust: bool) -> None:
    """Sum up the samples that SESSION reads: counts, sizes, mean and standard deviation, classes.

    Of images in their own size, values of 0 to 1, as the settings `mean` and `std` are.
    """
    summed = {
        split: _summed(_surveyed(split, samples, values=True))
        for split, samples in _stored(session, overrides, trust).items()
    }
    if as_json:
        say_json(summed)
        return
    for split, facts in summed.items():
        say(f"{split}:")
        say_pairs([(f"  {name}", _in_words(value)) for name, value in facts.items()])


@data.command(short_help="What is in a folder or a file.")
@click.argument("path", type=click.Path(path_type=Path), metavar="PATH")
@click.option("--target", default="", metavar="COLUMN", help="The column, or array, to predict; default: guessed.")
@click.option("--session", "-o", type=click.Path(path_type=Path), help="Write a session that trains on it there.")
@arguments.as_json
@_debug
def look(path: Path, target: str, session: Path | None, as_json: bool) -> None:
    """Show what is at PATH: images or sounds in class folders, a CSV file, Parquet or Arrow files, arrays, or text.

    Of class folders the classes and how many each has; of a table its columns, and of arrays each, with their
    statistics; of text how many symbols and lines. No session is needed, and --session FILE writes one to begin with.
    """
    if session is not None:
        new_file(session, "--session")
    from volary.data.looking.look import look as looked

    found = looked(path.absolute(), target)
    if session is not None and not found.session:
        raise BadInput(found.remarks[-1])
    if as_json:
        say_json(asdict(found))
    else:
        _show(found)
    if session is not None:
        session.write_text(found.session, encoding="utf-8")
        remark(f"wrote {session}; next: volary train {session}")


def _show(found: Look) -> None:
    """Print the parts, or what is counted of text, the classes, and the columns."""
    parts = [(name, f"{count:,} samples") for name, count in found.parts.items()]
    say_pairs([("kind", found.kind), *parts, *((name, f"{count:,}") for name, count in found.facts.items())])
    if found.classes:
        say("")
        first = list(found.classes.items())[:NAMED]
        say_table(["class", "samples"], [[name, f"{count:,}"] for name, count in first])
        if len(found.classes) > NAMED:
            say(f"... and {len(found.classes) - NAMED:,} more classes")
    if found.columns:
        say("")
        head = ["column", "kind", "missing", "distinct", "least", "mean", "std", "greatest"]
        say_table(head, [_row(one, found.target) for one in found.columns])
    for text in found.remarks:
        remark(text)


def _row(column: Column, target: str) -> list[str]:
    from volary.monitor.wording import number

    figures = (column.least, column.mean, column.std, column.greatest)
    name = f"{column.name} (target)" if column.name == target else column.name
    counts = [f"{column.missing:,}", f"{column.distinct:,}"]
    return [name, column.kind, *counts, *("" if one is None else number(one) for one in figures)]


def _opened(path: Path, overrides: tuple[str, ...], trust: bool) -> dict[str, Samples]:
    """The parts of the session's data. Raises BadInput for a data set of the user's own."""
    refuse_foreign(path, trust=trust)
    from volary.session import Session
    from volary.session.values.reference import UserObject

    session = Session.read(path, overrides)
    if isinstance(session.data.source, UserObject):
        raise BadInput(f"{path}: data.source is a data set of your own; accepted: a source that comes with Volary")
    from volary.train.data.opening import open_data

    return {split: open_data(session, split) for split in SPLITS}  # type: ignore[arg-type,misc]


def _stored(path: Path, overrides: tuple[str, ...], trust: bool) -> dict[str, Pipeline]:
    """The same. Raises BadInput for data that is not read from storage, too."""
    opened = _opened(path, overrides, trust)
    from volary.data.loading.pipeline import Pipeline

    for samples in opened.values():
        if not isinstance(samples, Pipeline):
            raise BadInput(f"{path}: data.source is kept in memory; accepted: a source of files, shards or records")
    return opened  # type: ignore[return-value]


def _surveyed(split: str, samples: Pipeline, *, values: bool) -> Survey:
    from volary.data.preparation.survey import survey

    with _progress(f"{split}: decoded", len(samples)) as progress:
        return survey(samples, progress, values=values)


@contextmanager
def _progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal; nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


def _summed(found: Survey) -> dict[str, Any]:
    sizes, shapes = sorted(found.record_bytes), sorted(found.shapes)
    return {
        "samples": found.samples,
        "damaged": len(found.damaged),
        "bytes": {"all": sum(sizes), "smallest": sizes[0], "median": sizes[len(sizes) // 2], "largest": sizes[-1]},
        "shapes": {"different": len(shapes), "smallest": shapes[0], "largest": shapes[-1]} if shapes else {},
        "mean": found.mean,
        "std": found.std,
        "classes": dict(sorted(found.classes.items())),
    }


def _in_words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_in_words(child)}" for name, child in value.items())
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    if isinstance(value, list):
        return ", ".join(f"{number:.4f}" for number in value)
    return f"{value:,}"
