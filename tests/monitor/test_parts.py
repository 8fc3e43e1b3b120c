"""Figures of classes and of cells stand in tables, and in no line."""

from __future__ import annotations

from volary.monitor.parts import tables
from volary.monitor.wording import measured, whole

FIGURES = {
    "loss": 0.5,
    "recall[0]": 1.0,
    "recall[2]": 0.25,
    "f1[0]": 0.5,
    "confusion[0,0]": 3.0,
    "confusion[0,1]": 1200.0,
    "confusion[1,0]": 0.0,
    "confusion[1,1]": 4.0,
}


def test_a_line_has_the_figures_of_all_that_was_measured() -> None:
    assert measured(FIGURES, "f1") == "loss 0.5"
    assert whole(["a", "a[1]", "a[1,2]", "a[b]"]) == ["a", "a[b]"]


def test_classes_and_matrices_are_tables_with_what_is_missing_left_open() -> None:
    assert tables(FIGURES) == [
        [("class", "recall", "f1"), ("0", "1", "0.5"), ("2", "0.25", "-")],
        [("confusion", "0", "1"), ("0", "3", "1200"), ("1", "0", "4")],
    ]
    assert tables({"loss": 1.0}) == []
