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
START = """\
import json
from functools import partial
from pathlib import Path

import torch
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder
from safetensors.torch import load

from _program import application, digits
from volary.errors import BadInput
from volary.spark import VolaryEstimator, VolaryModel

"""
END = """\

if __name__ == "__main__":
    with application("local[2]") as spark:
        said = made(spark)
    print(json.dumps(said))
"""
FITTED = """\

def made(spark):
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
    features = VolaryModel.from_run(run, ["image"], ["probability", "1"]).transform(df.limit(3)).collect()
    said["features"] = [[round(sum(row["probability"]), 3), len(row["1"])] for row in features]
    said["refused"] = []
    for wrong in (
        lambda: VolaryModel.from_run(run, ["label"]).transform(df),
        lambda: VolaryEstimator(inputCols=["image"]).fit(df),
        lambda: VolaryEstimator(session="session.yaml").fit(df),
        *(
            partial(VolaryEstimator(session="session.yaml", inputCols=["image"], validationIndicatorCol=name).fit, df)
            for name in ("held", "label")
        ),
    ):
        try:
            wrong()
        except BadInput as error:
            said["refused"].append(str(error))
    return said

"""
VALIDATED = """\

def made(spark):
    df, shape = digits(spark)
    accuracy = MulticlassClassificationEvaluator(metricName="accuracy", labelCol="target")
    few = VolaryEstimator(session="session.yaml", inputCols=["image"], labelCol="label", shape=shape)
    rates = [[f"optimizer.lr={rate}", "train.epochs=4"] for rate in ("0.05", "1e-9")]
    grid = ParamGridBuilder().addGrid(few.overrides, rates).build()
    validated = CrossValidator(estimator=few, estimatorParamMaps=grid, evaluator=accuracy, numFolds=2, seed=1).fit(
        df.withColumn("target", df["label"].cast("double"))
    )
    return validated.avgMetrics

"""


@pytest.mark.slow  # starts Spark, and two runs in it
def test_an_estimator_is_saved_loaded_and_fitted_in_a_pipeline_and_its_model_scores_the_same_after_it_was_saved(
    said_by,
):
    Path("session.yaml").write_text(SESSION)
    said = said_by(START + FITTED + END)
    assert said["columns"] == ["image", "label", "prediction"]
    assert said["accuracy"] > 0.8
    assert said["same"]
    assert said["begun"]
    assert said["features"] == [[1.0, 10]] * 3
    assert said["refused"] == [
        "inputs are 1 columns of numbers, and the network takes (1, 28, 28)",
        "session is not set; accepted: a file of one, or a volary.Session",
        "inputCols is not set; accepted: names of columns",
        "data has no column 'held'; accepted: image, label",
        "validationIndicatorCol: column 'label' is int; accepted: boolean",
    ]


@pytest.mark.slow  # starts Spark, and five runs in it
def test_cross_validation_tells_a_rate_that_learns_from_one_that_does_not(said_by):
    Path("session.yaml").write_text(SESSION)
    learns, does_not = said_by(START + VALIDATED + END)
    assert learns > 0.5 > does_not
