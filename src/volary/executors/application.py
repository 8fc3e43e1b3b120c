"""The application of Spark that a running program has, as processes that it starts reach it."""

from __future__ import annotations

import os
import signal
from importlib import import_module
from typing import Any

from volary.errors import BadInput
from volary.executors.stage import GATEWAY, REMOTE

_MANY = 1 << 20  # rows: more than a cluster has cores


def attached() -> Any:
    """The session of the program's application. Raises BadInput if this process was started by none.

    It is asked for as often as one likes.
    """
    sql = import_module("pyspark.sql")  # of the extra `spark`; where that is missing types are checked, too
    if (active := sql.SparkSession.getActiveSession()) is not None:
        return active
    if GATEWAY in os.environ:
        return _of_gateway(sql)
    if REMOTE in os.environ:
        return sql.SparkSession.builder.remote(os.environ[REMOTE]).getOrCreate()
    raise BadInput("no program with an application of Spark has started this; accepted: volary.spark.train(spark, ...)")


def resources(spark: Any, *, connect: bool) -> dict[str, Any]:
    """The application's version, slots for tasks (None: they are not known), and whether these change."""
    if connect:
        slots = _slots_by_cores(spark)
    else:
        context = spark.sparkContext._jsc.sc()
        slots = context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile())
    return {
        "version": spark.version,
        "slots": slots,
        "dynamic": spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true",
    }


def _slots_by_cores(spark: Any) -> int | None:
    """The slots that a Connect server has, by the cores over which it spreads rows; None if settings say how many."""
    if any(
        spark.conf.get(name, None) for name in ("spark.default.parallelism", "spark.sql.leafNodeDefaultParallelism")
    ):
        return None
    number = import_module("pyspark.sql.functions").spark_partition_id().alias("number")
    (last,) = spark.range(_MANY).select(number).agg({"number": "max"}).collect()
    return (int(last[0]) + 1) // int(spark.conf.get("spark.task.cpus", "1"))


def _of_gateway(sql: Any) -> Any:
    """The session of the program whose JVM it is."""
    core = import_module("pyspark")
    interrupted = signal.getsignal(signal.SIGINT)
    gateway = import_module("pyspark.java_gateway").launch_gateway()
    context = gateway.jvm.JavaSparkContext.fromSparkContext(gateway.jvm.org.apache.spark.SparkContext.getOrCreate())
    conf = core.SparkConf(_jvm=gateway.jvm, _jconf=context.getConf())
    found = sql.SparkSession(core.SparkContext(gateway=gateway, jsc=context, conf=conf))
    signal.signal(signal.SIGINT, interrupted)  # which a context of Spark takes
    return found
