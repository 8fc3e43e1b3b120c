"""Counts in tables: a row for each worker and each server, a column for each plain count."""

from __future__ import annotations

from volary.monitor.tables.counted import tables
from volary.run.database.counts import NOBODY, CountRow


def test_histogram_has_a_row_for_each_worker_and_each_server():
    (table,) = tables(
        [
            CountRow("staleness", 0, 0, 0, 3),
            CountRow("staleness", 0, 1, 2, 1),
            CountRow("staleness", 1, 1, 4, 6),
        ]
    )
    assert [row[:4] for row in table.rows] == [
        ("rank 0", "4", "0.5", "2"),
        ("rank 1", "6", "4", "4"),
        ("server 0", "3", "0", "0"),
        ("server 1", "7", "3.714", "4"),
    ]
    assert table.rows[0][4] == "0: 75%  2: 25%"


def test_long_histogram_shows_what_is_most_often():
    often = [CountRow("wait", 0, NOBODY, 2**power, 100) for power in range(8)]
    (table,) = tables([*often, CountRow("wait", 0, NOBODY, 4096, 1)])
    assert table.rows[0][3] == "4096"
    assert table.rows[0][4].startswith("1: 12%  2: 12%")
    assert table.rows[0][4].endswith("  ...")


def test_plain_counts_stand_side_by_side():
    found = [CountRow("dropped", 2, NOBODY, 0, 5), CountRow("late", 2, 0, 0, 7), CountRow("refused", NOBODY, 1, 0, 1)]
    (table,) = tables(found)
    assert (table.header, table.rows) == (
        ("", "late", "dropped", "stolen", "refused"),
        [("rank 2", "7", "5", "0", "0"), ("server 1", "0", "0", "0", "1")],
    )


def test_run_without_servers_has_no_tables():
    assert tables([]) == []
