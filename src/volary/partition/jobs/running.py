"""One job of short tasks: by broadcast and RDDs of a classic application, by frames alone over Spark Connect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from volary.executors.sent import sent
from volary.partition.jobs.share import GradientSlice, SharedNetwork, TaskShare

ADDED_UP_HERE = 4  # tasks whose gradients the driver adds up: a second stage costs more than so many take to arrive
_Row = dict[str, Any]  # tasks exchange no types of ours: they may have no Volary
_SLICES = "number int, task int, values binary, abouts array<binary>"


def slices_for(tasks: int) -> int:
    """Into how many slices so many tasks cut their gradients: one each, unless the driver adds them up."""
    return 1 if tasks <= ADDED_UP_HERE else tasks


def summed_slices(spark: Any, network: SharedNetwork, state: bytes, shares: Sequence[TaskShare]) -> list[GradientSlice]:
    """The sums of all tasks' slices, in their order. state: the network's, packed. Raises as Spark does."""
    run = _by_context if hasattr(spark, "_jsparkSession") else _by_frames
    return list(network.summed(run(spark, network, state, shares)))


def _by_context(spark: Any, network: SharedNetwork, state: bytes, shares: Sequence[TaskShare]) -> list[GradientSlice]:
    context = spark.sparkContext
    values, learn = context.broadcast(state), sent(partial(_learnt, network))
    try:
        rows = context.parallelize([share._asdict() for share in shares], len(shares))
        slices = rows.flatMap(lambda row: learn([row | {"state": values.value}]))
        if network.slices > 1:
            keyed = slices.keyBy(lambda row: row["number"]).partitionBy(network.slices, int)
            slices = keyed.values().mapPartitions(sent(partial(_summed, network)))
        return _slices(slices.collect())
    finally:
        values.destroy()  # or its files stay as long as the application


def _by_frames(spark: Any, network: SharedNetwork, state: bytes, shares: Sequence[TaskShare]) -> list[GradientSlice]:
    arrow: Any = import_module("pyarrow")
    both = [arrow.Table.from_pylist([share._asdict() for share in shares]), arrow.table({"state": [state]})]
    given, states = map(spark.createDataFrame, both)
    rows = given.crossJoin(import_module("pyspark.sql.functions").broadcast(states))
    slices = rows.mapInArrow(sent(partial(_of_batches, partial(_learnt, network))), _SLICES)
    if network.slices > 1:
        slices = slices.repartitionById(network.slices, "number")
        slices = slices.mapInArrow(sent(partial(_of_batches, partial(_summed, network))), _SLICES)
    return _slices(slices.toArrow().to_pylist())


def _of_batches(work: Callable[[Iterable[_Row]], Iterator[_Row]], batches: Iterable[Any]) -> Iterator[Any]:
    """Do some work on rows, as a task that has them in Arrow's batches."""
    arrow: Any = import_module("pyarrow")
    binary = arrow.binary()
    kinds = {"number": arrow.int32(), "task": arrow.int32(), "values": binary, "abouts": arrow.list_(binary)}
    for row in work(row for batch in batches for row in batch.to_pylist()):
        yield arrow.RecordBatch.from_pylist([row], arrow.schema(kinds))


def _learnt(network: SharedNetwork, rows: Iterable[_Row]) -> Iterator[_Row]:
    for row in rows:
        yield from (one._asdict() for one in network.learnt(row.pop("state"), TaskShare(**row)))


def _summed(network: SharedNetwork, rows: Iterable[_Row]) -> Iterator[_Row]:
    return (one._asdict() for one in network.summed(_slices(rows)))


def _slices(rows: Iterable[_Row]) -> list[GradientSlice]:
    return [GradientSlice(**row) for row in rows]
