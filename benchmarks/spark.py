"""What do training, feeding and scoring in Spark cost beside what a user of Spark would take instead?

    python benchmarks/spark.py [--quick] [--only NAME] [--json FILE]

One application, `local-cluster[2,1,1024]`, in which both sides take turns; needs what `make engines` installs.

train-start: from the call of `volary.spark.launch` until the first step of two workers, against `TorchDistributor`.
feed-bytes, feed-floats: rows of 784 values into the first epoch of a training, from when they are asked for: until all
are held for the workers, and for how long training waited for rows then; against a job of `mapInArrow` that only takes
the rows' bytes. epoch-floats: the whole call that trains one epoch of such rows, against `TorchDistributor` with its
own way from a DataFrame. score-...: classes of images by `VolaryModel`, against `predict_batch_udf` with the quickest
of three sizes of batches. features-...: the same of the outputs of two layers. reduce-blocks: the sum of arrays of 784
values, against a pandas UDF. in-band: a step of a network with 10 MB of parameters by `strategy.partition: spark`,
against the quickest of three plain sketches (sums by the driver, a shuffle, a tree), and a sum of as much by gloo
beside them.
--quick: one pair after one that does not count, and a tenth of the rows; else five pairs.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import _spark_in_band as in_band
import _spark_training
from _report import Options, Row, arguments, paired, report

BENCHMARKS = Path(__file__).resolve().parent
INSTALLED = BENCHMARKS.parent / ".engines" / "spark"
ROWS, VALUES = 40_000, 784
SESSION = """\
network: softmax
data: {batch_size: 1024, source: digits}
train: {epochs: 1}
evaluate: {every: never}
strategy: {workers: 2, startup_timeout_s: 600}
"""
BATCHES = (64, 256, 1024)  # of `predict_batch_udf`


@dataclass(frozen=True)
class Images:
    """The data that is scored. samples: in a full run."""

    network: str
    shape: tuple[int, ...]
    samples: int
    layers: tuple[str, str]


IMAGES = {
    "lenet": Images("lenet", (1, 28, 28), 20_000, ("pool2", "ip1")),
    "resnet18": Images("{name: resnet, depth: 18}", (3, 32, 32), 20_000, ("stage4", "pool")),
}


def main() -> None:
    """Run the rows that are asked for."""
    cases: dict[str, Callable[[Any, Options], Row]] = {"train-start": _train_start}
    cases |= {f"feed-{kind}": partial(_feed, kind) for kind in ("bytes", "floats")}
    cases |= {"epoch-floats": _epoch}
    cases |= {f"score-{name}": partial(_score, name, ()) for name in IMAGES}
    cases |= {f"features-{name}": partial(_score, name, images.layers) for name, images in IMAGES.items()}
    cases |= {"reduce-blocks": _reduce_blocks, "in-band": _in_band}
    options = arguments(__doc__, list(cases))
    if find_spec("pyspark") is None:
        if not INSTALLED.is_dir():
            print("Spark is not installed here: make engines")
            return
        sys.path.append(str(INSTALLED))
    with tempfile.TemporaryDirectory() as folder, _application(Path(folder)) as spark:
        report([case(spark, options) for name, case in cases.items() if options.wants(name)], options.json)


@contextmanager
def _application(folder: Path) -> Iterator[Any]:
    """A session of Spark; the current folder is `folder`, and executors import what this process does."""
    from pyspark.sql import SparkSession

    os.chdir(folder)
    path = os.pathsep.join([str(BENCHMARKS), *filter(None, [os.environ.get("PYTHONPATH")]), str(INSTALLED)])
    os.environ |= {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    os.environ |= {"SPARK_WORKER_DIR": str(folder / "work"), "SPARK_LOCAL_DIRS": str(folder)}
    settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    settings |= {"spark.executorEnv.PYTHONPATH": path, "spark.log.level": "ERROR"}
    spark = SparkSession.builder.master("local-cluster[2,1,1024]").config(map=settings).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def _row(name: str, figures: tuple[Callable[[], float], Callable[[], float]], how: Row, options: Options) -> Row:
    """The row of two figures that take turns; `how` has what is known of it before."""
    found = paired(*figures, 1 if options.quick else 5)
    print(f"{name}: {found.ratio:.3f} ± {found.spread:.3f}", flush=True)
    return Row(name, found.ours, how.unit, how.peer, found.theirs, found.ratio, how.wanted, how.better)


def _train_start(spark: Any, options: Options) -> Row:
    from pyspark.ml.torch.distributor import TorchDistributor

    import volary.spark

    def ours() -> float:
        began_s = time.time()
        ended_s: list[float] = volary.spark.launch(spark, _spark_training.ours, workers=2, show=False).values
        return max(ended_s) - began_s

    def theirs() -> float:
        began_s = time.time()
        distributor = TorchDistributor(num_processes=2, local_mode=False, use_gpu=False)
        return float(distributor.run(_spark_training.theirs)) - began_s

    how = Row("", 0, "s", "TorchDistributor", 0, 0, "at most 0.50", "lower")
    return _row("train-start", (ours, theirs), how, options)


def _frame(kind: str, spark: Any, rows: int) -> Any:
    """Rows of 784 values, each an image, and a label."""
    arrow: Any = import_module("pyarrow")
    values = np.random.default_rng(1).integers(0, 256, (rows, VALUES), dtype=np.uint8)
    images = [one.tobytes() for one in values] if kind == "bytes" else list((values / 255).astype(np.float32))
    labels = arrow.array(np.arange(rows) % 10, arrow.int32())
    _parquet({"image": arrow.array(images), "label": labels}, kind)
    return spark.read.parquet(str(Path(kind).absolute()))


def _feed(kind: str, spark: Any, options: Options) -> Row:
    rows = ROWS // 10 if options.quick else ROWS
    df, shape = _frame(kind, spark, rows), (1, 28, 28) if kind == "bytes" else ()

    def theirs() -> float:
        began_s = time.perf_counter()
        df.mapInArrow(_spark_training.counted, "bytes long").collect()
        return rows / (time.perf_counter() - began_s)

    how = Row("", 0, "rows/s", "mapInArrow alone", 0, 0, "at least 0.90", "higher")
    return _row(f"feed-{kind}", (lambda: _fed(spark, df, shape), theirs), how, options)


def _epoch(spark: Any, options: Options) -> Row:
    from pyspark.ml.torch.distributor import TorchDistributor

    rows = ROWS // 10 if options.quick else ROWS
    df = _frame("floats", spark, rows)

    def ours() -> float:
        began_s = time.perf_counter()
        _trained(spark, df, ())
        return time.perf_counter() - began_s

    def theirs() -> float:
        began_s = time.perf_counter()
        distributor = TorchDistributor(num_processes=2, local_mode=False, use_gpu=False)
        distributor._train_on_dataframe(_spark_training.theirs_on_frame, df.coalesce(2), rows // 2)
        return time.perf_counter() - began_s

    how = Row("", 0, "s", "TorchDistributor", 0, 0, "at most 1.00", "lower")
    return _row("epoch-floats", (ours, theirs), how, options)


def _trained(spark: Any, df: Any, shape: tuple[int, ...]) -> Any:
    """The result of one epoch over a frame's rows."""
    import volary.spark

    Path("session.yaml").write_text(SESSION, encoding="utf-8")
    return volary.spark.train(spark, "session.yaml", show=False, data=df, inputs="image", targets="label", shape=shape)


def _fed(spark: Any, df: Any, shape: tuple[int, ...]) -> float:
    """Rows/s into the first epoch of a training."""
    from volary.run.database.reader import RunReader

    with RunReader(_trained(spark, df, shape).directory) as reader:
        (event,) = reader.events(kind="handed_over")
        waited_s = sum(row.data_s for row in reader.steps() if row.rank == 0)
    return float(event.data["rows"] / (event.data["seconds"] + waited_s))


def _in_band(spark: Any, options: Options) -> Row:
    best = min(in_band.SKETCHES, key=lambda name: in_band.seconds_a_step(spark, in_band.SKETCHES[name]))
    peer = f"{best}; gloo {in_band.gloo(spark):.3f} s"
    how = Row("", 0, "s", peer, 0, 0, "at most 1.10", "lower")
    theirs = partial(in_band.seconds_a_step, spark, in_band.SKETCHES[best])
    return _row("in-band", (partial(_step_by_jobs, spark), theirs), how, options)


def _step_by_jobs(spark: Any) -> float:
    """Seconds of a step of a session whose batches are jobs of short tasks; a median."""
    import volary
    import volary.spark
    from volary.run.database.reader import RunReader

    session = volary.Session(
        network=f"{BENCHMARKS / '_spark_in_band.py'}:Wide",
        data={"source": "digits", "batch_size": in_band.BATCH},
        train={"steps": in_band.WARM + in_band.COUNTED},
        evaluate={"every": "never"},
        checkpoint={"every": "never"},
        strategy={"partition": {"name": "spark", "tasks": in_band.TASKS}, "startup_timeout_s": 600},
    )
    with RunReader(volary.spark.train(spark, session, show=False).directory) as reader:
        return median(row.step_s for row in list(reader.steps())[in_band.WARM :])


def _score(name: str, layers: tuple[str, ...], spark: Any, options: Options) -> Row:
    import torch
    from pyspark.ml.functions import predict_batch_udf
    from pyspark.sql.functions import col
    from pyspark.sql.types import ArrayType, DoubleType, FloatType, StructField, StructType
    from safetensors.torch import save

    from volary.spark import VolaryModel
    from volary.spark.scoring_network import ScoringNetwork, session_of
    from volary.train.model import build_network

    images = IMAGES[name]
    rows, values = (images.samples // 40 if options.quick else images.samples), int(np.prod(images.shape))
    text = f"network: {images.network}\ndata: {{source: digits, batch_size: 64}}\ntrain: {{steps: 1}}\n"
    torch.manual_seed(1)
    module = build_network(session_of(text), images.shape, 10)
    weights = save({key: value.clone() for key, value in module.state_dict().items()})
    arrow: Any = import_module("pyarrow")
    pixels = np.random.default_rng(1).random((rows, values), dtype=np.float32)
    title = f"{'features' if layers else 'score'}-{name}"
    _parquet({"image": arrow.array(list(pixels))}, title)
    df = spark.read.parquet(str(Path(title).absolute()))
    model = VolaryModel(ScoringNetwork(text, images.shape, 10, weights))
    model.setInputCols(["image"]).setOutputs(list(layers) or ["prediction"])

    def make() -> Any:
        from safetensors.torch import load

        network = build_network(session_of(text), images.shape, 10)
        network.load_state_dict(load(weights))
        return network

    arrays = [StructField(layer, ArrayType(FloatType())) for layer in layers]
    kind = StructType(arrays) if layers else DoubleType()

    def scored(scores: Any) -> float:
        began_s = time.perf_counter()
        scores.write.format("noop").mode("overwrite").save()
        return rows / (time.perf_counter() - began_s)

    def theirs(size: int) -> float:
        begin = _spark_training.predicting(make, images.shape, layers)
        predict = predict_batch_udf(begin, return_type=kind, batch_size=size, input_tensor_shapes=[list(images.shape)])
        return scored(df.withColumn("made", predict(col("image"))))

    best = max(BATCHES, key=theirs)
    how = Row("", 0, "rows/s", f"predict_batch_udf, {best}", 0, 0, "at least 1.15", "higher")
    return _row(title, (lambda: scored(model.transform(df)), lambda: theirs(best)), how, options)


def _reduce_blocks(spark: Any, options: Options) -> Row:
    from pyspark.sql.functions import pandas_udf

    from volary.spark import reduce_blocks

    arrow: Any = import_module("pyarrow")
    pandas: Any = import_module("pandas")
    rows = ROWS // 10 if options.quick else ROWS
    _parquet({"x": arrow.array(list(np.random.default_rng(1).random((rows, VALUES))))}, "reduced")
    df = spark.read.parquet(str(Path("reduced").absolute()))

    def total(x: Any) -> list[float]:
        return list(np.stack(x.to_numpy()).sum(0))

    total.__annotations__ = {"x": pandas.Series, "return": list[float]}
    summed = pandas_udf(total, "array<double>", functionType=202)  # of a group: one value of all rows

    def ours() -> float:
        began_s = time.perf_counter()
        reduce_blocks(lambda x: {"x": x.sum(0)}, df, shapes={"x": (VALUES,)})
        return rows / (time.perf_counter() - began_s)

    def theirs() -> float:
        began_s = time.perf_counter()
        df.agg(summed("x")).collect()
        return rows / (time.perf_counter() - began_s)

    how = Row("", 0, "rows/s", "a pandas UDF", 0, 0, "at least 1.00", "higher")
    return _row("reduce-blocks", (ours, theirs), how, options)


def _parquet(columns: dict[str, Any], folder: str) -> None:
    """Write a table to four files, which Spark reads as so many partitions."""
    arrow: Any = import_module("pyarrow")
    files: Any = import_module("pyarrow.parquet")
    table, parts = arrow.table(columns), 4
    Path(folder).mkdir()
    size = -(-table.num_rows // parts)
    for part in range(parts):
        files.write_table(table.slice(part * size, size), f"{folder}/{part}.parquet")


if __name__ == "__main__":
    main()
