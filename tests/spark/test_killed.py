"""Executors that are killed while they hand over rows, and while they score: real Spark, in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

SESSION = """\
network: softmax
data: {source: digits, batch_size: 64}
optimizer: {name: sgd, lr: 0.05}
train: {steps: 30}
evaluate: {every: never}
strategy: {workers: 2, startup_timeout_s: 600}
"""
PROGRAM = """\
import itertools
import json
import os
from pathlib import Path

import psutil

import volary.spark
from _program import apart, application, digits, weights
from volary.run.database.reader import RunReader
from volary.spark import VolaryModel

PARTITIONS = 4
BEFORE = 2 * PARTITIONS  # computed when rows are counted, and two of them tried


def killing(folder, number):
    \"\"\"Passes rows on, and kills its executor when a partition comes for the time with this number, from 0.\"\"\"

    def run(batches):
        for mine in itertools.count():
            try:
                os.close(os.open(f"{folder}/{mine}", os.O_CREAT | os.O_EXCL))
                break
            except FileExistsError:
                pass
        for batch in batches:
            if mine == number:
                parents = psutil.Process().parents()
                next(one for one in parents if "CoarseGrainedExecutorBackend" in " ".join(one.cmdline())).kill()
            yield batch

    return run


def killed(folder):
    return len(list(Path(folder).iterdir()))


def measure(spark):
    df, shape = digits(spark, partitions=PARTITIONS)
    frames = {"inputs": "image", "targets": "label", "shape": shape}
    said = {}

    Path("feeding").mkdir()
    feeding = df.mapInArrow(killing(Path("feeding").absolute(), BEFORE + 1), df.schema)
    result = volary.spark.train(spark, "session.yaml", show=False, data=feeding, **frames)
    with RunReader(result.directory) as reader:
        (event,) = reader.events(kind="handed_over")
    said["feeding"] = [killed("feeding") > BEFORE + PARTITIONS, event.data["rows"] == df.count()]
    undisturbed = volary.spark.train(spark, "session.yaml", show=False, data=df, **frames)
    said["apart"] = apart(weights(result), weights(undisturbed))

    Path("scoring").mkdir()
    model = VolaryModel.from_run(result.directory.path, ["image"], ["prediction"], shape=shape)
    scoring = df.mapInArrow(killing(Path("scoring").absolute(), 1), df.schema)
    found = [row["prediction"] for row in model.transform(scoring).collect()]
    said["scoring"] = [killed("scoring") > PARTITIONS, sorted(found)]
    said["expected"] = sorted(row["prediction"] for row in model.transform(df).collect())
    return said


if __name__ == "__main__":
    with application("local-cluster[2,1,1024]") as spark:
        said = measure(spark)
    print(json.dumps(said))
"""


@pytest.mark.timeout(920)
@pytest.mark.slow  # starts a cluster of Spark's, and two runs in it
def test_an_executor_killed_while_it_feeds_or_scores_costs_no_row_and_none_comes_twice(said_by):
    Path("session.yaml").write_text(SESSION)
    said = said_by(PROGRAM, at_most_s=900)  # on a busy machine
    assert said["feeding"] == [True, True]
    assert said["apart"] == 0
    assert said["scoring"] == [True, said["expected"]]
