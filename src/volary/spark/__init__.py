"""Volary in a program that uses Spark: what `import volary.spark` offers. Guide: docs/engine-spark.md

volary.spark.train(spark, "session.yaml", ["strategy.workers=8"])   # workers are tasks of the running application
volary.spark.launch(spark, loop, workers=8)                         # the same for a training loop of your own
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from volary.spark.running import launch as launch
    from volary.spark.running import train as train

_HOME = {"launch": "running", "train": "running"}
__all__ = ["launch", "train"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: tasks of Spark import this room for parts of it."""
    if name not in _HOME:
        raise AttributeError(f"module 'volary.spark' has no attribute {name!r}")
    return getattr(import_module(f"volary.spark.{_HOME[name]}"), name)
