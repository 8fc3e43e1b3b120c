"""How a missing value is written in a table: what pandas takes for missing, and the UCI repository's "?"."""

from __future__ import annotations

MISSING = frozenset(
    [
        "",
        "?",
        "#N/A",
        "#NA",
        "-NaN",
        "-nan",
        "<NA>",
        "N/A",
        "NA",
        "NAN",
        "NULL",
        "NaN",
        "Nan",
        "None",
        "n/a",
        "nan",
        "null",
        "\\N",
    ]
)
