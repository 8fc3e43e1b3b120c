"""Parts of the programs that these tests start: an application of Spark, the digits as a frame, weights of runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from pyspark.sql import SparkSession

from volary.api import Result
from volary.data.sources.digits import SOURCE


@contextmanager
def application(master: str, settings: Mapping[str, str] | None = None) -> Iterator[Any]:
    """A session of Spark on this machine alone; its executors import what the program does."""
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(Path("work").absolute())}
    given = {"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    given |= {"spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"], "spark.log.level": "OFF"}
    spark = SparkSession.builder.master(master).config(map=given | (settings or {})).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def digits(spark: Any, split: str = "train", partitions: int = 3) -> tuple[Any, tuple[int, ...]]:
    """The digits as a frame of `image` and `label`, always in the order of their source, and an image's shape."""
    samples = SOURCE().open(split)
    images, labels = samples.fetch(torch.arange(len(samples)))
    rows = [(image.ravel().tolist(), int(label)) for image, label in zip(images.numpy(), labels.numpy(), strict=True)]
    parallel = spark.sparkContext.parallelize(rows, partitions)
    return spark.createDataFrame(parallel, "image array<float>, label int"), tuple(images.shape[1:])


def weights(result: Result) -> dict[str, torch.Tensor]:
    """The weights of a run's newest checkpoint, whoever wrote which part of it."""
    return result.module.state_dict()


def apart(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> float:
    """The largest difference between the same weights of two runs."""
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)
