"""docs/runs.md says what can be done with a run's database, and it can."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from monitor._made_runs import whole_run
from volary.run.database.journal import StepRow

GUIDE = (Path(__file__).parents[2] / "docs" / "runs.md").read_text()
QUERIES = re.findall(r'"(SELECT [^"]+)"', GUIDE)
PYTHON = re.findall(r"```python\n(from volary\.run.*?)```", GUIDE, re.DOTALL)


@pytest.mark.parametrize("query", QUERIES)
def test_each_query_of_the_guide_finds_something(query):
    with closing(sqlite3.connect(whole_run().database)) as database:
        assert database.execute(query).fetchall()


def test_the_python_of_the_guide_runs(capsys):
    whole_run()
    assert len(PYTHON) == 1
    exec(PYTHON[0], {})
    assert capsys.readouterr().out == "finished 46\n[(23, 0.9132), (46, 0.9733)]\n"


def test_the_guide_names_every_column_of_a_step():
    table = GUIDE.partition("`steps`, a row")[2].partition("`metrics`, a row")[0]
    named = re.findall(r"^\| ([a-z_, ]+) \|", table, re.MULTILINE)
    assert set(", ".join(named).split(", ")) - {"column"} == set(StepRow._fields)


def test_the_guide_names_every_part_of_a_run_directory():
    for path in whole_run().path.iterdir():
        assert f"  {path.name}" in GUIDE
