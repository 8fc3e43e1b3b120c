"""A program that uses Spark trains below tasks of its application: real Spark, in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from volary.errors import BadInput
from volary.spark.running import handed_over, launch

SESSION = """\
network: softmax
data: {source: digits, batch_size: 64}
optimizer: {name: sgd, lr: 0.05}
train: {steps: 30}
evaluate: {every: 15 steps}
strategy: {workers: 2, startup_timeout_s: 600}
"""
PROGRAM = """\
import json
from pathlib import Path

import volary.spark
from _program import apart, application, digits, weights
from volary.errors import BadInput
from volary.run.database.reader import RunReader


def loop(worker):
    return worker.rank


def refused(spark):
    frames, said = {"inputs": "image", "targets": "label"}, {}
    few = [([0.0] * 4, 1)] * 4
    sound, nulls = (spark.createDataFrame(rows, "image array<float>, label int") for rows in (few, [*few, (None, 1)]))
    for name, overrides, frames in (
        ("slots", ["strategy.workers=4"], {}),
        ("slots of rows", ["strategy.workers=4"], frames | {"data": sound}),
        ("null", [], frames | {"data": nulls}),
        ("column", [], {"data": spark.range(9), "inputs": "x", "targets": "id"}),
        ("empty", [], {"data": spark.range(0), "inputs": "id", "targets": "id"}),
    ):
        try:
            volary.spark.train(spark, "session.yaml", overrides, show=False, **frames)
        except BadInput as error:
            said[name] = str(error)
    said["runs"] = [str(one) for one in Path().glob("runs/*")]
    return said


def trained(spark):
    files = volary.spark.train(spark, "session.yaml", ["run.name=files"], show=False)
    (data, shape), (validation, _) = digits(spark), digits(spark, "test")
    rows = volary.spark.train(
        spark, "session.yaml", ["run.name=rows"], show=False,
        data=data, validation=validation, inputs="image", targets="label", shape=shape, keep_mib=0,
    )
    with RunReader(rows.directory) as reader:
        (event,) = reader.events(kind="handed_over")
    said = {"rows": [event.data["by"], event.data["rows"], data.count()]}
    said["apart"] = apart(weights(files), weights(rows))
    said["accuracy"] = [result.metrics["accuracy"] for result in (files, rows)]
    said["values"] = volary.spark.launch(spark, loop, workers=2, show=False).values
    said["goes on"] = spark.range(4).count()
    return said


if __name__ == "__main__":
    with application("local[3]") as spark:
        said = refused(spark) | trained(spark)
    print(json.dumps(said))
"""


@pytest.mark.slow  # starts Spark, and three runs in it
def test_rows_of_a_frame_train_to_the_weights_of_the_same_session_from_files_and_the_application_goes_on(said_by):
    Path("session.yaml").write_text(SESSION)
    said = said_by(PROGRAM)
    assert said["slots"] == "engine: 4 workers take 4 slots for tasks, and the cluster has 3"
    assert said["slots of rows"] == said["slots"]
    assert said["null"] == "data: column 'image' has 1 nulls in a batch; accepted: none (df.dropna)"
    assert said["column"] == "data has no column 'x'; accepted: id"
    assert said["empty"] == "data is empty; accepted: a frame with rows"
    assert said["runs"] == []
    assert said["rows"][1] == said["rows"][2]
    assert said["apart"] == 0
    assert said["accuracy"][0] == said["accuracy"][1]
    assert said["accuracy"][0][-1][1] > 0.7
    assert (said["values"], said["goes on"]) == ([0, 1], 4)


def test_what_belongs_to_a_frame_is_refused_without_one():
    with pytest.raises(BadInput, match="validation, inputs, targets and shape are of data"), handed_over(inputs="x"):
        pass


def test_an_engine_of_one_s_own_is_refused():
    with pytest.raises(BadInput, match=r"engine is 'local', and volary\.spark\.launch has its own"):
        launch(None, "loop.py:loop", workers=2, engine="local")
