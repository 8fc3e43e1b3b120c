"""MNIST from a frame, against the same session from files: real Spark, in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark.conftest import SOURCE

MNIST = SOURCE.parents[1] / "shared" / "data" / "mnist"
LEAST = 0.85  # of the test images, after a third of an epoch of a network in which rounding does not grow
AT_MOST_S = 1000  # of three runs on a busy machine
APART = 0.02  # accuracies of two orders of the same images
SESSION = f"""\
network: softmax
data: {{source: {{name: idx, folder: {MNIST}}}, batch_size: 64}}
optimizer: {{name: sgd, lr: 0.05, momentum: 0.0}}
train: {{steps: 300}}
evaluate: {{every: 300 steps}}
strategy: {{workers: 2, startup_timeout_s: 600}}
"""
PROGRAM = """\
import json

import pyarrow as pa
import torch

import volary
import volary.spark
from _program import apart, application, weights


def frame(spark, source, split, order=slice(None)):
    samples = source.open(split)
    images, labels = samples.fetch(torch.arange(len(samples))[order])
    raw = [image.tobytes() for image in (images * 255).round().to(torch.uint8).numpy()]
    return spark.createDataFrame(pa.table({"image": raw, "label": pa.array(labels.numpy(), pa.int32())}))


def trained(spark):
    session = volary.Session.read("session.yaml")
    source, test = session.data.source, frame(spark, session.data.source, "test")
    mixed = torch.randperm(60_000, generator=torch.Generator().manual_seed(1))
    results = [volary.spark.train(spark, session, show=False)]
    for data in (frame(spark, source, "train"), frame(spark, source, "train", mixed)):
        results.append(volary.spark.train(
            spark, session, show=False, data=data, validation=test, inputs="image", targets="label", shape=(1, 28, 28)
        ))
    return results


if __name__ == "__main__":
    with application("local[2]") as spark:
        results = trained(spark)
    files, rows, _ = map(weights, results)
    print(json.dumps([apart(files, rows), *(result.metrics["accuracy"][-1][1] for result in results)]))
"""


@pytest.mark.timeout(AT_MOST_S + 20)
@pytest.mark.slow  # starts Spark, and three runs in it
@pytest.mark.skipif(not MNIST.is_dir(), reason="there is no ../shared/data/mnist beside the checkout")
def test_mnist_from_a_frame_is_as_accurate_as_from_files_and_equal_to_rounding_in_the_same_order(said_by):
    Path("session.yaml").write_text(SESSION)
    apart, files, rows, mixed = said_by(PROGRAM, at_most_s=AT_MOST_S)
    assert apart < 1e-5
    assert files > LEAST
    assert rows == pytest.approx(files, abs=1e-3)
    assert mixed == pytest.approx(files, abs=APART)
