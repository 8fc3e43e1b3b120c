"""Volary in a program that uses Spark: what `import volary.spark` offers. Guide: docs/engine-spark.md

volary.spark.train(spark, "session.yaml", ["strategy.workers=8"])   # workers are tasks of the running application
volary.spark.launch(spark, loop, workers=8)                         # the same for a training loop of your own
volary.spark.VolaryModel.from_run("it", ["image"]).transform(df)    # a trained network as a stage of pyspark.ml
volary.spark.map_blocks(lambda x: {"y": 2 * x}, df)                 # a function of tensors over a frame
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from volary.spark.collectives import TaskGroup as TaskGroup
    from volary.spark.frames import aggregate as aggregate
    from volary.spark.frames import analyze as analyze
    from volary.spark.frames import map_blocks as map_blocks
    from volary.spark.frames import map_rows as map_rows
    from volary.spark.frames import reduce_blocks as reduce_blocks
    from volary.spark.frames import reduce_rows as reduce_rows
    from volary.spark.running import launch as launch
    from volary.spark.running import train as train
    from volary.spark.stages import VolaryEstimator as VolaryEstimator
    from volary.spark.stages import VolaryModel as VolaryModel

_HOMES = {
    "collectives": ("TaskGroup",),
    "frames": ("aggregate", "analyze", "map_blocks", "map_rows", "reduce_blocks", "reduce_rows"),
    "running": ("launch", "train"),
    "stages": ("VolaryEstimator", "VolaryModel"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
__all__ = [
    "TaskGroup",
    "VolaryEstimator",
    "VolaryModel",
    "aggregate",
    "analyze",
    "launch",
    "map_blocks",
    "map_rows",
    "reduce_blocks",
    "reduce_rows",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: tasks of Spark import this room for parts of it."""
    if name not in _HOME:
        raise AttributeError(f"module 'volary.spark' has no attribute {name!r}")
    return getattr(import_module(f"volary.spark.{_HOME[name]}"), name)
