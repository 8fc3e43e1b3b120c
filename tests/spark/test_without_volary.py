"""Executors whose Python finds no Volary: everything that is sent there says so by their name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HIDING = """\
import sys
from pathlib import Path

sys.path[:] = [one for one in sys.path if not Path(one, "volary").is_dir()]
sys.meta_path[:] = [one for one in sys.meta_path if "__editable__" not in type(one).__module__ + str(one)]
"""
PROGRAM = """\
import json
import os

from _program import application
from volary.errors import VolaryError
from volary.spark import VolaryModel, aggregate, map_blocks, reduce_blocks, train

def cause(call):
    try:
        call()
    except Exception as error:
        return str(error)
    return ""

def sentences(spark):
    df = spark.createDataFrame([(number % 3, float(number)) for number in range(40)], "key int, x double")
    model = VolaryModel.from_run("runs/it", ["image"])
    images = spark.createDataFrame([([0.0] * 64,)], "image array<float>")
    jobs = ["strategy.partition=spark", "evaluate.every=never", "run.name=jobs"]
    return {
        "map": cause(map_blocks(lambda x: {"y": 2 * x}, df).collect),
        "reduce": cause(lambda: reduce_blocks(lambda x: {"x": x.sum(0)}, df)),
        "aggregate": cause(aggregate(lambda x: {"x": x.sum(0)}, df.groupBy("key"), df).collect),
        "score": cause(model.transform(images).collect),
        "train": cause(lambda: train(spark, "session.yaml", ["run.name=other"], show=False)),
        "jobs": cause(lambda: train(spark, "session.yaml", jobs, show=False)),
    }


if __name__ == "__main__":
    from volary import Session
    Session.read("session.yaml", ["run.name=it"]).train(show=False)
    hidden = {"spark.executorEnv.PYTHONPATH": os.path.abspath("hiding") + os.pathsep + os.environ["SPARK_PATHS"]}
    with application("local-cluster[2,1,1024]", hidden) as spark:
        said = sentences(spark)
    print(json.dumps(said))
"""
SESSION = """\
network: softmax
data: {source: digits, batch_size: 32}
train: {steps: 2, device: cpu}
strategy: {workers: 2}
"""


@pytest.mark.slow  # starts a cluster
def test_whatever_is_sent_to_executors_without_volary_says_so_in_a_sentence(said_by, monkeypatch):
    Path("hiding").mkdir()
    Path("hiding", "sitecustomize.py").write_text(HIDING)
    Path("session.yaml").write_text(SESSION)
    monkeypatch.setenv("SPARK_PATHS", os.environ["PYTHONPATH"])
    said = said_by(PROGRAM)
    for what, sentence in said.items():
        assert "Volary is not installed; accepted: " in sentence, (what, sentence)
