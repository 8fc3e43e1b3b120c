"""The counters of a run with parameter servers: staleness, waits, contributions that were late or dropped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from volary.monitor.wording import number
from volary.run.database.counts import CountRow

HISTOGRAMS = {
    "staleness": "staleness: updates between the parameters a contribution was computed with and its own",
    "wait": "waits for parameters, in milliseconds up to",
}
COUNTS = ("late", "dropped", "stolen", "refused")
_SHOWN = 8  # bars of a histogram
_HISTOGRAM_HEADER = ("", "count", "mean", "most", "value: share")


@dataclass(frozen=True)
class TextTable:
    """Rows under a title. header: names of the columns."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def tables(counts: Iterable[CountRow]) -> list[TextTable]:
    """All counts in tables: a table for each histogram, by worker and by server, and one of the plain counts."""
    found = list(counts)
    made = [_histogram(kind, [one for one in found if one.kind == kind]) for kind in HISTOGRAMS]
    made.append(_counts([one for one in found if one.kind in COUNTS]))
    return [table for table in made if table.rows]


def _histogram(kind: str, found: Sequence[CountRow]) -> TextTable:
    by_worker = _grouped([(one.rank, one) for one in found if one.rank >= 0])
    by_server = _grouped([(one.server, one) for one in found if one.server >= 0])
    rows = [_bars(f"rank {rank}", group) for rank, group in by_worker]
    rows += [_bars(f"server {server}", group) for server, group in by_server]
    return TextTable(HISTOGRAMS[kind], _HISTOGRAM_HEADER, rows)


def _bars(name: str, found: Sequence[CountRow]) -> tuple[str, ...]:
    counts: dict[int, int] = {}
    for one in found:
        counts[one.value] = counts.get(one.value, 0) + one.count
    total = sum(counts.values())
    mean = sum(value * count for value, count in counts.items()) / total
    often = sorted(sorted(counts, key=lambda value: -counts[value])[:_SHOWN])
    bars = "  ".join(f"{value}: {counts[value] / total:.0%}" for value in often)
    return name, str(total), number(mean), str(max(counts)), bars + ("  ..." if len(counts) > _SHOWN else "")


def _counts(found: Sequence[CountRow]) -> TextTable:
    rows = []
    for rank, group in _grouped([(one.rank, one) for one in found if one.rank >= 0]):
        rows.append((f"rank {rank}", *(str(_total(group, kind)) for kind in COUNTS)))
    for server, group in _grouped([(one.server, one) for one in found if one.rank < 0]):
        rows.append((f"server {server}", *(str(_total(group, kind)) for kind in COUNTS)))
    return TextTable("contributions that went another way", ("", *COUNTS), rows)


def _total(found: Sequence[CountRow], kind: str) -> int:
    return sum(one.count for one in found if one.kind == kind)


def _grouped(pairs: Sequence[tuple[int, CountRow]]) -> list[tuple[int, list[CountRow]]]:
    groups: dict[int, list[CountRow]] = {}
    for of, one in pairs:
        groups.setdefault(of, []).append(one)
    return sorted(groups.items())
