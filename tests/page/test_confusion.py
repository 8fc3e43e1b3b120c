"""The confusion matrix that the page draws is the newest one, with the names of its classes."""

from __future__ import annotations

from monitor._made_runs import journal, new_run, started, whole_run
from page._made import CONFUSION, slow_run
from volary.page.questions.evaluations.confusion import confusion
from volary.page.questions.facts import facts
from volary.run.database.reader import RunReader


def test_it_is_of_the_newest_evaluation_that_has_one():
    directory = slow_run()
    with RunReader(directory) as reader:
        assert confusion(reader) == {"step": 100, "counts": CONFUSION, "names": ["ant", "bee"]}
    assert facts(directory)["confusion"]
    with journal(directory) as run:
        run.metrics(120, {"accuracy": 0.8, "confused": 1.0, "confusion[x]": 1.0, "f1[0]": 0.5})
    with RunReader(directory) as reader:
        assert confusion(reader)["step"] == 120  # of which no cell is one
        assert confusion(reader)["counts"] == []


def test_without_names_classes_are_numbers_and_without_a_matrix_there_is_none():
    directory = new_run("bare")
    with journal(directory) as run:
        started(run, 10)
        run.metrics(10, {"confusion[0,0]": 4.0, "confusion[2,1]": 1.0})
    with RunReader(directory) as reader:
        found = confusion(reader)
    assert found["names"] == ["0", "1", "2"]
    assert found["counts"] == [[4, None, None], [None, None, None], [None, 1, None]]
    plain = whole_run("plain")
    with RunReader(plain) as reader:
        assert confusion(reader) == {"step": 0, "counts": [], "names": []}
    assert not facts(plain)["confusion"]
