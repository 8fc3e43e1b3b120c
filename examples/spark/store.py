"""Linear regression in a stage of one's own, whose tasks push to and pull from a store: spark-submit store.py"""

import pyarrow as pa
import torch
import volary
from pyspark import BarrierTaskContext, SparkFiles
from pyspark.sql import SparkSession

TASKS, ROWS, VALUES, STEPS, RATE = 2, 200, 5, 100, 0.5


def begin():
    """Inputs (rows, values), and targets that are a sum of them."""
    inputs = torch.rand(ROWS, VALUES, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return inputs, inputs @ torch.arange(1.0, VALUES + 1, dtype=torch.float64)


def gradient(weights, inputs, targets):
    """The gradient of these rows' part of the mean squared error of all rows."""
    return 2 / ROWS * inputs.T @ (inputs @ weights - targets)


def alone():
    """Weights that one process comes to."""
    weights = torch.zeros(VALUES, dtype=torch.float64)
    for _ in range(STEPS):
        weights -= RATE * gradient(weights, *begin())
    return weights


def tasks(address):
    """The function of the stage. address: of the store, whose key is among the files that Spark sends along."""

    def work(batches):
        rows = [row for batch in batches for row in batch.to_pylist()]
        inputs, targets = (torch.tensor([row[name] for row in rows], dtype=torch.float64) for name in ("x", "y"))
        rank = BarrierTaskContext.get().partitionId()
        with volary.store.connect(address, SparkFiles.get("key"), worker=rank) as store:
            store.init("weights", torch.zeros(VALUES, dtype=torch.float64))
            for _ in range(STEPS):
                store.push("weights", gradient(store.pull("weights"), inputs, targets))
            yield pa.RecordBatch.from_pydict({"weights": [store.pull("weights").tolist()]})

    return work


if __name__ == "__main__":
    spark = SparkSession.builder.appName("store").getOrCreate()
    rows = [(x.tolist(), float(y)) for x, y in zip(*begin(), strict=True)]
    frame = spark.createDataFrame(rows, "x array<double>, y double").repartition(TASKS)
    # in a cluster: host=, the address by which executors reach this machine
    with volary.store.serve(workers=TASKS, servers=2, updater={"name": "SGD", "lr": RATE}) as served:
        spark.addArtifacts(str(served.key_file), file=True)
        found = frame.mapInArrow(tasks(served.address), "weights array<double>", barrier=True).collect()
    same = [torch.allclose(torch.tensor(row["weights"], dtype=torch.float64), alone()) for row in found]
    word = "same" if all(same) else "wrong"
    print(f"weights {', '.join(f'{one:.2f}' for one in alone())}; the {word} ones in {len(same)} tasks")
    spark.stop()
