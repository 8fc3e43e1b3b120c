"""Parts of every benchmark script: its options, alternating pairs, and the rows that it prints and writes."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal, TypeVar

Figure = TypeVar("Figure")


@dataclass(frozen=True)
class Row:
    """One answer. ratio: what `wanted` bounds, e.g. "at most 1.03"; better: which way it should go.

    value and peer_value are ours and the peer's in `unit`; peer names what a user would take instead.
    """

    name: str
    value: float
    unit: str
    peer: str
    peer_value: float
    ratio: float
    wanted: str
    better: Literal["lower", "higher"]


@dataclass(frozen=True)
class Paired:
    """Ours against theirs in alternation. ratio: median of each pair's ours/theirs; spread: half its middle 50 %."""

    ours: float
    theirs: float
    ratio: float
    spread: float


@dataclass(frozen=True)
class Options:
    """The arguments of a script: a quick run (all of it within two minutes), one row only, a file for the rows.

    more: options of this script alone.
    """

    quick: bool
    only: str | None
    json: Path | None
    more: argparse.Namespace

    def wants(self, name: str) -> bool:
        """Whether the row called `name` is asked for."""
        return self.only is None or self.only == name


def arguments(
    doc: str | None,
    names: Sequence[str] | None = None,
    own: Callable[[argparse.ArgumentParser], object] = lambda _: None,
) -> Options:
    """The options of a script. doc: its docstring, which is its help. names: its rows, which `--only` accepts.

    own: adds those that no other script has.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE")
    parser.add_argument("--quick", action="store_true", help="end within two minutes, with less certain figures")
    parser.add_argument("--only", metavar="NAME", choices=names, help="run one row")
    own(parser)
    given = parser.parse_args()
    return Options(quick=given.quick, only=given.only, json=given.json, more=given)


def processors_option(parser: argparse.ArgumentParser) -> None:
    """The option of scripts that can measure processor seconds."""
    parser.add_argument("--processors", action="store_true", help="processor seconds of all workers instead of time")


def paired(ours: Callable[[], float], theirs: Callable[[], float], pairs: int) -> Paired:
    """Call both in alternation, `pairs` times after one pair that does not count; each returns its figure."""
    return compared(alternated(ours, theirs, pairs + 1)[1:])


def alternated(ours: Callable[[], Figure], theirs: Callable[[], Figure], pairs: int) -> list[tuple[Figure, Figure]]:
    """Call both in alternation, `pairs` times.

    Who is first changes with every pair, so that a machine that slows down over time favours neither.
    """
    found: list[tuple[Figure, Figure]] = []
    for number in range(pairs):
        if number % 2:
            second, first = theirs(), ours()
        else:
            first, second = ours(), theirs()
        found.append((first, second))
    return found


def compared(counted: Sequence[tuple[float, float]]) -> Paired:
    """Medians and ratio of pairs of figures, ours and theirs."""
    ratios = [one / other for one, other in counted]
    quarters = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else [ratios[0]] * 3
    return Paired(
        ours=statistics.median(one for one, _ in counted),
        theirs=statistics.median(other for _, other in counted),
        ratio=statistics.median(ratios),
        spread=(quarters[2] - quarters[0]) / 2,
    )


def of_starts(name: str, starts: Sequence[tuple[Paired, str]], unit: str, wanted: str) -> Row:
    """The row of what was paired in several starts of all processes: medians over them. Prints each start's ratio.

    starts: with the name of the peer in each.
    """
    ratio = statistics.median(found.ratio for found, _ in starts)
    print(f"{name}: {ratio:.3f}; by start:", ", ".join(f"{one.ratio:.3f} ± {one.spread:.3f}" for one, _ in starts))
    return Row(
        name=name,
        value=statistics.median(found.ours for found, _ in starts),
        unit=unit,
        peer=" or ".join(sorted({peer for _, peer in starts})),
        peer_value=statistics.median(found.theirs for found, _ in starts),
        ratio=ratio,
        wanted=wanted,
        better="lower",
    )


def report(rows: Sequence[Row], json_path: Path | None) -> None:
    """Print the rows as a table, and write them to `json_path` as a JSON list if there is one."""
    titles = [field.name for field in fields(Row)]
    cells = [titles, *([_cell(value) for value in asdict(row).values()] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(titles))]
    for line in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    if json_path is not None:
        json_path.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n", encoding="utf-8")


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
