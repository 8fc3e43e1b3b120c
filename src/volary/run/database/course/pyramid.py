"""Steps of a run in ever larger groups, kept beside them, so that a view of any width reads few rows.

A group of level 0 is 16 steps of one worker, one of each higher level four of the level below. Triggers make them as
steps are written; what has no group (the newest steps, a step that was lost, a run of an older version) is read from
the level below, and in the end from the steps themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

BASE, FACTOR, LEVELS = 16, 4, 12  # the highest level: groups of 67 million steps
ROWS = 60_000  # that one view reads, about

Rows = Callable[[str, Sequence[Any]], Iterable[Any]]  # a query and its values to rows


@dataclass(slots=True)
class StepGroup:
    """Steps of one worker as one. column: which of the view's; count: how many steps there are.

    samples, bytes and times are sums; ended_at is the newest. loss_count: losses that are numbers; without one the
    least, the greatest and the sum are None. lr: the greatest.
    """

    rank: int
    column: int
    count: int
    ended_at: float
    samples: int
    loss_count: int
    loss_sum: float | None
    loss_min: float | None
    loss_max: float | None
    lr: float | None
    step_s: float
    data_s: float
    forward_s: float
    backward_s: float
    exchange_s: float
    optimizer_s: float
    sent_bytes: int
    received_bytes: int


@dataclass(frozen=True)
class StepView:
    """Steps `first` to `last`, in columns of `width` steps each, by rank and column; a column without steps is not
    there.
    """

    first: int
    last: int
    width: int
    groups: list[StepGroup]


_VALUES = [f.name for f in fields(StepGroup)][2:]
_HOW = {"ended_at": "MAX", "loss_min": "MIN", "loss_max": "MAX", "lr": "MAX"}  # the others are sums
_OF_STEPS = {
    "count": "COUNT(*)",
    "loss_count": "COUNT(loss)",
    "loss_sum": "SUM(loss)",
    "loss_min": "MIN(loss)",
    "loss_max": "MAX(loss)",
}
_COLUMNS = ", ".join(f"{f.name} {'INTEGER' if f.type == 'int' else 'REAL'}" for f in fields(StepGroup)[2:])


def _merged(source: dict[str, str]) -> str:
    return ", ".join(source.get(name, f"{_HOW.get(name, 'SUM')}({name})") for name in _VALUES)


def _made(
    name: str, table: str, child: str, due: str, level: str, number: str, parts: int, source: dict[str, str]
) -> str:
    if table == "steps":  # a list, not a range: each is found by its key, however many workers there are
        which = f"{child} IN ({', '.join(f'NEW.{child} - {back}' for back in range(parts))})"
    else:
        which = f"level = NEW.level AND {child} BETWEEN NEW.{child} - {parts - 1} AND NEW.{child}"
    return f"""
CREATE TRIGGER IF NOT EXISTS {name} AFTER INSERT ON {table} WHEN {due}
    BEGIN INSERT OR REPLACE INTO groups SELECT {level}, NEW.rank, {number}, {_merged(source)}
    FROM {table} WHERE rank = NEW.rank AND {which}
    GROUP BY rank HAVING COUNT(*) = {parts}; END;
"""


# a group's trigger makes the group above it
SCHEMA = f"""
PRAGMA recursive_triggers = ON;
CREATE TABLE IF NOT EXISTS groups (
    level INTEGER, rank INTEGER, number INTEGER, {_COLUMNS}, PRIMARY KEY (level, rank, number)) WITHOUT ROWID;
{_made("steps_grouped", "steps", "step", f"NEW.step % {BASE} = 0", "0", f"NEW.step / {BASE} - 1", BASE, _OF_STEPS)}
{
    _made(
        "groups_grouped",
        "groups",
        "number",
        f"NEW.number % {FACTOR} = {FACTOR - 1} AND NEW.level < {LEVELS - 1}",
        "NEW.level + 1",
        f"NEW.number / {FACTOR}",
        FACTOR,
        {},
    )
}"""
ENDS_AT = f"(number + 1) * {BASE} * (1 << 2 * level)"  # the last step of a group
IS_THERE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'groups'"  # not in a run of an older version
# found by skipping from one to the next, not by reading all
RANKS = """
WITH RECURSIVE found(rank) AS (
    SELECT MIN(rank) FROM groups WHERE level = 0
    UNION ALL SELECT (SELECT MIN(rank) FROM groups WHERE level = 0 AND rank > found.rank) FROM found
    WHERE found.rank IS NOT NULL)
SELECT rank FROM found WHERE rank IS NOT NULL"""


def view(rows: Rows, ranks: Sequence[int], first: int, last: int, most: int) -> StepView:
    """Steps `first` to `last` of `ranks`, in at most `most` columns, fewer if there are very many workers."""
    grouped = next(iter(rows(IS_THERE, [])), None) is not None
    level, width = _scale(last - first + 1, max(1, most), max(1, len(ranks)))
    first = (first - 1) // width * width + 1
    reading = _Reading(rows, first, width)
    reading.read(ranks, level if grouped else -1, first, last)
    found = sorted(reading.found.values(), key=lambda group: (group.rank, group.column))
    return StepView(first, last, width, found)


def _scale(steps: int, most: int, ranks: int) -> tuple[int, int]:
    """The level to read (-1: the steps themselves), and how many steps make a column: whole groups of that level."""
    width = -(-steps // most)
    level = -1
    while level < LEVELS - 1 and (_size(level + 1) <= width or ranks * steps // _size(level) > ROWS):
        level += 1
    return level, -(-width // _size(level)) * _size(level)


def _size(level: int) -> int:
    return 1 if level < 0 else int(BASE * FACTOR**level)


class _Reading:
    """Reads a level, and where it lacks something the one below; adds up what falls into one column."""

    def __init__(self, rows: Rows, origin: int, width: int) -> None:
        self._rows, self._origin, self._width = rows, origin, width
        self.found: dict[tuple[int, int], StepGroup] = {}

    def read(self, ranks: Sequence[int], level: int, first: int, last: int) -> None:
        """Steps `first` to `last`: those that no whole group of this level holds from the level below."""
        if level < 0:
            of = f"steps WHERE step BETWEEN ? AND ? AND rank IN ({', '.join(map(str, ranks))})"
            self._take("step", _merged(_OF_STEPS), of, [first, last])
            return
        size = _size(level)
        low, high = -(-(first - 1) // size), last // size - 1
        missing: dict[tuple[int, int], list[int]] = {}
        for rank in ranks:
            of, keys = "groups WHERE level = ? AND rank = ? AND number BETWEEN ? AND ?", [level, rank, low, high]
            there: Iterable[int] = range(low, high + 1)
            if self._take(f"number * {size} + 1", _merged({}), of, keys) < high + 1 - low:
                there = [number for (number,) in self._rows(f"SELECT number FROM {of}", keys)]
            for stretch in _between(there, size, first, last):
                missing.setdefault(stretch, []).append(rank)
        for (begin, end), lacking in missing.items():
            self.read(lacking, level - 1, begin, end)

    def _take(self, step: str, values: str, of: str, keys: Sequence[int]) -> int:
        """Add up rows by rank and column; how many there were."""
        column = f"({step} - {self._origin}) / {self._width}"
        taken = 0
        for parts, rank, number, *row in self._rows(
            f"SELECT COUNT(*), rank, {column}, {values} FROM {of} GROUP BY 2, 3", keys
        ):
            taken += parts
            group, known = StepGroup(rank, number, *row), self.found.get((rank, number))
            self.found[rank, number] = merged([known, group]) if known else group
        return taken


def _between(there: Iterable[int], size: int, first: int, last: int) -> Iterator[tuple[int, int]]:
    """The stretches of `first` to `last` that the groups `there` leave out."""
    at = first
    for number in there:
        if at <= number * size:
            yield at, number * size
        at = (number + 1) * size + 1
    if at <= last:
        yield at, last


def merged(groups: Sequence[StepGroup]) -> StepGroup:
    """Steps of several workers or stretches as one; rank and column are those of the first."""
    first = groups[0]
    if len(groups) == 1:
        return first
    return StepGroup(
        first.rank,
        first.column,
        *(how(values) for how, values in zip(_HOW_HERE, zip(*map(_AS_ROW, groups), strict=True), strict=True)),
    )


def _of_known(how: Callable[[list[Any]], Any]) -> Callable[[Iterable[Any]], Any]:
    def found(values: Iterable[Any]) -> Any:
        known = [value for value in values if value is not None]
        return how(known) if known else None

    return found


_AS_ROW = attrgetter(*_VALUES)
_HERE: dict[str, Callable[..., Any]] = {"MAX": max, "MIN": min}
_NULLABLE = {f.name for f in fields(StepGroup) if "None" in str(f.type)}
_HOW_HERE = [
    _of_known(how) if name in _NULLABLE else how
    for name, how in ((name, _HERE.get(_HOW.get(name, ""), sum)) for name in _VALUES)
]
