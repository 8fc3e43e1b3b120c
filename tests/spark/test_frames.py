"""Functions over frames: real Spark, in a process of its own."""

from __future__ import annotations

import re

import pytest

PROGRAM = """\
import json

from _program import application
from volary.errors import VolaryError
from volary.spark import aggregate, analyze, map_blocks, map_rows, reduce_blocks, reduce_rows

def made(spark):
    rows = [(number % 3, float(number), [float(number), 1.0]) for number in range(40)]
    df = spark.createDataFrame(rows, "key int, x double, v array<double>").repartition(20)
    said = {"analyze": analyze(df)}
    blocks = map_blocks(lambda x, v: {"y": x * 2, "w": v.unsqueeze(1) + 1}, df)
    said["schema"] = [kind for _, kind in blocks.dtypes]
    said["blocks"] = sorted([row["x"], row["y"], row["w"]] for row in blocks.collect())[:2]
    said["rows"] = sorted(row["n"] for row in map_rows(lambda v: {"n": v.sum()}, df).collect())[-1]
    said["sum"] = {k: v.tolist() for k, v in reduce_blocks(lambda x, v: {"x": x.sum(0), "v": v.sum(0)}, df).items()}
    said["most"] = reduce_rows(lambda x_1, x_2: {"x": x_1.maximum(x_2)}, df)["x"].item()
    groups = aggregate(lambda x: {"x": x.sum(0)}, df.groupBy("key"), df)
    said["groups"] = sorted([row["key"], row["x"]] for row in groups.collect())
    for name, call in (
        ("column", lambda: map_blocks(lambda z: {"y": z}, df)),
        ("string", lambda: reduce_blocks(lambda name: {"name": name}, df.selectExpr("'a' as name"))),
        ("null", lambda: reduce_blocks(lambda x: {"x": x.sum(0)}, df.selectExpr("if(x = 9, null, x) as x"))),
        ("nulls", lambda: analyze(df.selectExpr("if(x < 2, null, v) as v"))),
        ("taken", lambda: map_blocks(lambda x: {"v": x}, df)),
        ("empty", lambda: analyze(df.limit(0))),
    ):
        try:
            call()
        except VolaryError as error:
            said[name] = str(error)
    return said


if __name__ == "__main__":
    with application("local[2]") as spark:
        said = made(spark)
    print(json.dumps(said))
"""


@pytest.mark.slow  # starts Spark
def test_functions_map_reduce_and_aggregate_rows_of_a_frame(said_by):
    said = said_by(PROGRAM)
    assert said["analyze"] == {"key": [], "x": [], "v": [2]}
    assert said["schema"] == ["int", "double", "array<double>", "double", "array<array<double>>"]
    assert said["blocks"] == [[0.0, 0.0, [[1.0, 2.0]]], [1.0, 2.0, [[2.0, 2.0]]]]
    assert said["rows"] == 40.0
    assert said["sum"] == {"x": 780.0, "v": [780.0, 40.0]}
    assert said["most"] == 39.0
    assert said["groups"] == [[key, float(sum(range(key, 40, 3)))] for key in range(3)]
    assert said["column"] == "the frame has no column 'z'; accepted: key, x, v"
    assert said["string"] == "column 'name' is string; accepted: numbers, dates, arrays of numbers (also nested)"
    assert re.fullmatch("the frame cannot be computed: column 'x' has 1 nulls in a batch; accepted: .*", said["null"])
    assert said["nulls"] == "column 'v' has 2 nulls; accepted: none (df.dropna)"
    assert said["taken"] == "result 'v' is a column of the frame already; accepted: names that it has not"
    assert said["empty"] == "the frame is empty; accepted: one with rows"
