"""Frames of every kind of column and partition, as rows for training; collectives of tasks: real Spark, own process."""

from __future__ import annotations

import pytest

PROGRAM = """\
import datetime
import decimal
import json
import os
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from pyspark.ml.linalg import Vectors

from _program import application
from volary.errors import BadInput
from volary.executors.stage import FED
from volary.spark import TaskGroup
from volary.spark.rows import FrameRows
from volary.spark.running import _fed, handed_over

UNEVEN = [0, 1, 0, 7, 40, 0, 3, 0, 0]


def taken(spark, df, inputs, shape=(), targets="y"):
    \"\"\"What workers get of a frame, in the order of its numbers; or what is wrong with it.\"\"\"
    try:
        with handed_over(data=df, inputs=inputs, targets=targets, shape=shape) as handed, _fed(spark, handed, 2):
            rows = json.loads(Path(os.environ[FED]).read_text())
            key = bytes.fromhex(rows["key"])
            with closing(FrameRows(rows["tasks"], 0, key, handed.rows[0], handed.classes)) as found:
                return [one.tolist() for one in found.fetch(torch.arange(len(found)))]
    except BadInput as error:
        return str(error)


def kinds(spark):
    found = {}
    rows = [
        (n, decimal.Decimal(n) / 4, datetime.date(1970, 1, 1 + n), bool(n), [[float(n), 1.0]], bytes([0, 255 * n]),
         Vectors.dense([n, 2.0]) if n else Vectors.sparse(2, {1: 5.0}), [1.0] * (1 + n), None if n else 1.5, n / 2)
        for n in range(2)
    ]
    schema = "y int, dec decimal(10,2), day date, flag boolean, grid array<array<float>>, raw binary"
    df = spark.createDataFrame(
        [row[:6] + row[7:] for row in rows], schema + ", ragged array<float>, hole double, value double"
    )
    vectors = spark.createDataFrame([(row[6], row[0]) for row in rows], ["vector", "y"])
    found["numbers"] = taken(spark, df, ["dec", "day", "flag", "y"])
    found["grid"] = taken(spark, df, "grid")
    found["bytes"] = taken(spark, df, "raw", (1, 1, 2))
    found["vector"] = taken(spark, vectors, "vector")
    found["array targets"] = taken(spark, df, "dec", targets="grid")
    found["value targets"] = taken(spark, df, "dec", targets="value")
    for name, inputs, targets, shape in (
        ("ragged", "ragged", "y", ()), ("hole", ["dec", "hole"], "y", ()), ("no target", "dec", "hole", ()),
        ("size", "raw", "y", (3,)), ("string", "name", "y", ()),
    ):
        found[name] = taken(spark, df.selectExpr("*", "'a' as name"), inputs, shape, targets)
    return found


def partitions(spark):
    def some(number, _):
        first = sum(UNEVEN[:number])
        return [(first + n, [float(first + n)]) for n in range(UNEVEN[number])]

    uneven = spark.sparkContext.parallelize(range(len(UNEVEN)), len(UNEVEN)).mapPartitionsWithIndex(some)
    found = {"uneven": taken(spark, uneven.toDF("y int, x array<float>"), "x")}
    for count in (1, 40):
        df = spark.range(0, 50, 1, count).selectExpr("int(id) as y", "array(float(id)) as x")
        found[f"{count}"] = taken(spark, df, "x")

    def once(batches):
        from pyspark import TaskContext

        for batch in batches:
            yield batch
            if TaskContext.get().attemptNumber() == 0 and TaskContext.get().partitionId() == 1:
                raise RuntimeError("the first attempt ends after its rows")

    df = spark.range(0, 50, 1, 3).selectExpr("int(id) as y", "array(float(id)) as x")
    counted = df.mapInArrow(lambda batches: batches, df.schema)
    found["retried"] = taken(spark, counted.mapInArrow(once, df.schema), "x")
    return found


def collectives(spark):
    group = TaskGroup()

    def work(batches):
        with group.joined() as team:
            mine = np.arange(3.0) + 10 * team.rank
            said = [team.all_reduce(mine).tolist(), team.broadcast(mine).tolist(), team.rotate(mine).tolist()]
            said.append([one.tolist() for one in team.all_gather(mine)])
            said.append({key: one.tolist() for key, one in team.regroup({"a": mine, "b": mine}).items()})
        yield pa.RecordBatch.from_pydict({"said": [json.dumps(said)]})

    rows = spark.range(0, 2, 1, 2).mapInArrow(work, "said string", barrier=True).collect()
    return [json.loads(row["said"]) for row in rows]


if __name__ == "__main__":
    with application("local[2,4]") as spark:
        said = {"kinds": kinds(spark), "partitions": partitions(spark), "collectives": collectives(spark)}
    print(json.dumps(said))
"""


@pytest.mark.timeout(720)
@pytest.mark.slow  # starts Spark
def test_columns_of_every_kind_are_taken_or_refused_by_name_and_rows_of_any_partitions_come_once_in_order(said_by):
    said = said_by(PROGRAM, at_most_s=700)
    kinds = said["kinds"]
    assert kinds["numbers"] == [[[0, 0, 0, 0], [0.25, 1, 1, 1]], [0, 1]]
    assert kinds["grid"] == [[[[0, 1]], [[1, 1]]], [0, 1]]
    assert kinds["bytes"] == [[[[[0, 0]]], [[[0, 1]]]], [0, 1]]
    assert kinds["vector"] == [[[0, 5], [1, 2]], [0, 1]]
    assert kinds["array targets"] == [[[0], [0.25]], [[[0, 1]], [[1, 1]]]]
    assert kinds["value targets"] == [[[0], [0.25]], [0, 0.5]]
    assert kinds["ragged"] == "data: column 'ragged' has arrays of (1,) and of (2,); accepted: arrays of one size"
    assert kinds["hole"] == "data: column 'hole' has 1 nulls in a batch; accepted: none (df.dropna)"
    assert kinds["no target"] == kinds["hole"]
    assert kinds["size"] == "data: column 'raw' has 2 bytes in a row, and its shape 3 values"
    assert kinds["string"].startswith("inputs: column 'name' is string; accepted: numbers, dates, arrays of numbers")
    in_order = [[[float(number)] for number in range(51)], list(range(51))]
    assert said["partitions"].pop("uneven") == in_order
    for name, rows in said["partitions"].items():
        assert rows == [part[:50] for part in in_order], name
    first, second = ([number + 10.0 * rank for number in range(3)] for rank in range(2))
    total = [one + other for one, other in zip(first, second, strict=True)]
    for rank, (summed, sent, rotated, gathered, _) in enumerate(said["collectives"]):
        assert (summed, sent, rotated) == (total, first, first if rank else second)
        assert gathered == [first, second]
    assert said["collectives"][0][4] | said["collectives"][1][4] == {"a": total, "b": total}
