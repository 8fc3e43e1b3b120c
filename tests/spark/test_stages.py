"""Stages of pyspark.ml in a program that uses Spark: real Spark, in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

SESSION = """\
network: softmax
data: {source: digits, batch_size: 64}
optimizer: {name: sgd, lr: 0.05}
train: {epochs: 1}
evaluate: {every: never}
strategy: {workers: 2, startup_timeout_s: 600}
"""
PROGRAM = """\
import json
from pathlib import Path

import torch
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder
from safetensors.torch import load

from _program import application, digits
from volary.errors import BadInput
from volary.spark import VolaryEstimator, VolaryModel


def fitted(spark):
    df, shape = digits(spark)
    estimator = VolaryEstimator(session="session.yaml", inputCols=["image"], overrides=["train.epochs=4"], shape=shape)
    Pipeline(stages=[estimator]).write().overwrite().save("pipeline")
    estimator = Pipeline.load("pipeline").getStages()[0]
    model = Pipeline(stages=[estimator]).fit(df)
    scored = model.transform(df)
    said = {"columns": scored.columns}
    said["accuracy"] = MulticlassClassificationEvaluator(metricName="accuracy").evaluate(
        scored.withColumn("label", scored["label"].cast("double"))
    )
    model.write().overwrite().save("model")
    again = PipelineModel.load("model").transform(df)
    said["same"] = again.select("prediction").collect() == scored.select("prediction").collect()
    (run,) = Path("runs").glob("*")
    network = model.stages[0].network
    more = VolaryEstimator(
        session="session.yaml", inputCols=["image"], overrides=["optimizer.lr=1e-9"], shape=shape,
        initialModel=model.stages[0],
    )
    begun = load(more.fit(df).network.weights)
    said["begun"] = all(torch.allclose(begun[name], value, atol=1e-6) for name, value in load(network.weights).items())
    accuracy = MulticlassClassificationEvaluator(metricName="accuracy", labelCol="target")
    few = VolaryEstimator(session="session.yaml", inputCols=["image"], labelCol="label", shape=shape)
    rates = [[f"optimizer.lr={rate}", "train.epochs=4"] for rate in ("0.05", "1e-9")]
    grid = ParamGridBuilder().addGrid(few.overrides, rates).build()
    validated = CrossValidator(estimator=few, estimatorParamMaps=grid, evaluator=accuracy, numFolds=2, seed=1).fit(
        df.withColumn("target", df["label"].cast("double"))
    )
    said["validated"] = validated.avgMetrics
    features = VolaryModel.from_run(run, ["image"], ["probability", "1"]).transform(df.limit(3)).collect()
    said["features"] = [[round(sum(row["probability"]), 3), len(row["1"])] for row in features]
    try:
        VolaryModel.from_run(run, ["label"]).transform(df)
    except BadInput as error:
        said["refused"] = str(error)
    return said


if __name__ == "__main__":
    with application("local[2]") as spark:
        said = fitted(spark)
    print(json.dumps(said))
"""


@pytest.mark.slow  # starts Spark, and a run in it
def test_an_estimator_is_saved_loaded_and_fitted_in_a_pipeline_and_its_model_scores_the_same_after_it_was_saved(
    said_by,
):
    Path("session.yaml").write_text(SESSION)
    said = said_by(PROGRAM)
    assert said["columns"] == ["image", "label", "prediction"]
    assert said["accuracy"] > 0.8
    assert said["same"]
    assert said["begun"]
    assert said["validated"][0] > 0.5 > said["validated"][1]
    assert said["features"] == [[1.0, 10]] * 3
    assert said["refused"] == "inputs are 1 columns of numbers, and the network takes (1, 28, 28)"
