"""Runs in the application of a program that uses Spark."""

from __future__ import annotations

import json
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, TypedDict, Unpack

import volary.api as api
from volary.errors import BadInput, VolaryError
from volary.executors.application import resources
from volary.executors.arrays import ColumnLayout, layout_of
from volary.executors.feeding import fed, release
from volary.executors.frame import HandedFrames, positioned, require_alike, rows_of
from volary.executors.row_store import KEEP_BYTES
from volary.executors.stage import CONNECT, FED, FRAME, GATEWAY, REMOTE, cause, lacks
from volary.session.spec import Session

SOURCE, BY_JOBS = "volary.spark.rows:open_rows", "volary.spark.rows_by_jobs:open_rows"
_SECRET = "PYSPARK_GATEWAY_SECRET"  # the name of the variable beside GATEWAY
_REPLACED_S, _LOOK_S = 60.0, 0.2  # in which Spark replaces an executor that was lost while rows were taken
AS_ARRAYS = {"vector": "array<double>"}  # of types that become another before they are handed over


class FrameSettings(TypedDict, total=False):
    """The frames of a run, as `train` takes them by name.

    data: a DataFrame of training data. validation: one with the same columns; none: evaluate.every=never. inputs: a
    column of arrays, of vectors of pyspark.ml, or of bytes; or columns of numbers. targets: the column to predict.
    shape: of one input, as (1, 28, 28); default: as the column has it. keep_mib: of the rows so many stay in memory for
    each worker, and the rest is in files; default: 256.
    """

    data: Any
    validation: Any
    inputs: str | Sequence[str]
    targets: str
    shape: Sequence[int]
    keep_mib: int


def train(
    spark: Any,
    session: Session | str | Path,
    overrides: Sequence[str] = (),
    *,
    show: bool = True,
    **frames: Unpack[FrameSettings],
) -> api.Result:
    """Train a session below tasks of the application of `spark`, a SparkSession, classic or of Connect; with
    strategy.partition=spark in this machine's processes, for which jobs of short tasks compute.

    session: or a file of one, with `overrides` as `volary train` takes them. Its engine is `spark`, with `pin` and
    `max_restarts` of the one that it names. show: progress. frames: those of `FrameSettings`, in place of the source
    that the session names; processes on the executors hold their rows. Raises as `volary.Session.train` does, and
    BadInput before a worker starts if the application has too few slots for tasks, or a column is not as it should be.
    """
    given = session if isinstance(session, Session) else Session.read(session, overrides)
    if isinstance(session, Session) and overrides:
        raise BadInput("overrides are for a session file; accepted: dataclasses.replace(session, ...)")
    settings = {name: getattr(given.engine, name) for name in ("pin", "max_restarts")}
    by_jobs = bool(given.strategy.partition.elsewhere)  # workers are here then, and have no tasks beside them
    if "data" in frames and not by_jobs and (reason := _lacks(spark, given.strategy.workers)) is not None:
        raise BadInput(f"engine: {reason}")  # before rows are counted, and taken
    with lent(spark) as engine, handed_over(**frames) as handed:
        if handed is not None:
            _require_fit(spark, given, handed)
            given = replace(given, data=replace(given.data, source=BY_JOBS if by_jobs else SOURCE))
        given = replace(given, engine=({"name": "local"} if by_jobs else engine) | settings)
        with nullcontext() if handed is None or by_jobs else _fed(spark, handed, given.strategy.workers):
            return api.train(given, show=show)


def launch(
    spark: Any,
    function: Callable[..., Any] | str,
    workers: int | None = None,
    strategy: Mapping[str, Any] | None = None,
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    show: bool = True,
    **settings: Unpack[api.LoopSettings],
) -> api.Result:
    """Call a training loop of one's own below tasks of the application of `spark`; otherwise as `volary.launch`.

    Raises BadInput if an engine is named, and as `train`.
    """
    if "engine" in settings:
        raise BadInput(f"engine is {settings['engine']!r}, and volary.spark.launch has its own; accepted: none")
    with lent(spark) as engine:
        settings["engine"] = engine
        return api.launch(function, workers, strategy, args=args, kwargs=kwargs, show=show, **settings)


@contextmanager
def lent(spark: Any) -> Iterator[dict[str, Any]]:
    """Let processes that this one starts use the application, as spark-submit does; give the engine's settings."""
    if not hasattr(spark, "_jsparkSession"):
        address = f"{CONNECT}{spark.client._builder.endpoint}"
        with _in_environment({REMOTE: address}):
            yield {"name": "spark", "master": address}
        return
    context = spark.sparkContext
    gateway = context._gateway
    where = getattr(gateway, "java_parameters", None) or gateway.gateway_parameters
    given = {GATEWAY: str(where.port), _SECRET: where.auth_token}
    with _in_environment(given):
        yield {"name": "spark", "master": context.master}


@contextmanager
def handed_over(
    data: Any = None,
    validation: Any = None,
    inputs: str | Sequence[str] = (),
    targets: str = "",
    shape: Sequence[int] = (),
    keep_mib: int = KEEP_BYTES >> 20,
) -> Iterator[HandedFrames | None]:
    """Let what is started meanwhile have these frames.

    None: there is no frame. Rows are counted first. Raises BadInput for columns that are missing, or of a type that
    cannot be used, and for a frame without rows; VolaryError if it cannot be computed.
    """
    if data is None:
        if validation is not None or inputs or targets or shape:
            raise BadInput("validation, inputs, targets and shape are of data; accepted: data=df with them")
        yield None
        return
    names = [inputs] if isinstance(inputs, str) else list(inputs)
    layout = _layout_of(data, names, targets, shape)
    if keep_mib < 0:
        raise BadInput(f"keep_mib is {keep_mib}; accepted: 0 or more")
    if validation is not None and (other := _layout_of(validation, names, targets, shape)) != layout:
        raise BadInput(f"validation has columns of other types than data ({other.kind}, not {layout.kind})")
    frames = [data] if validation is None else [data, validation]
    with said_plainly():
        rows, tops = zip(*(_counted(frame, targets if layout.whole else None) for frame in frames), strict=True)
    if 0 in rows:
        raise BadInput(f"{'validation' if rows[0] else 'data'} is empty; accepted: a frame with rows")
    views = [f"volary_{secrets.token_hex(8)}" for _ in frames]
    for frame, view in zip(frames, views, strict=True):
        arrays = frame.withColumns({name: without_vectors(frame, name) for name in names})
        positioned(arrays, layout).createGlobalTempView(view)
    test = views[1] if len(views) > 1 else None
    try:
        handed = HandedFrames(views[0], test, layout, [*rows, 0][:2], max(tops) + 1 or None, keep_mib << 20)
        with _in_environment({FRAME: handed.words()}):
            yield handed
    finally:
        for view in views:
            with suppress(Exception):  # the application may have ended
                data.sparkSession.catalog.dropGlobalTempView(view)


@contextmanager
def _fed(spark: Any, frames: HandedFrames, workers: int) -> Iterator[None]:
    """Let the rows be taken for a run that is started meanwhile.

    Raises BadInput if rows are not what they should be, and VolaryError as `said_plainly`.
    """
    with said_plainly():
        rows = fed(spark, frames, workers)
    try:
        if refused := [one["refused"] for one in rows["tasks"] if "refused" in one]:
            raise BadInput(refused[0])
        require_alike([one["like"] for one in rows["tasks"] if one["like"] is not None], frames.layout)
    except BadInput as error:
        release(spark, rows)
        raise BadInput(f"data: {error}") from None
    end_s = time.monotonic() + _REPLACED_S
    while _lacks(spark, workers) is not None and time.monotonic() < end_s:
        time.sleep(_LOOK_S)
    with tempfile.TemporaryDirectory(prefix="volary-rows-") as folder:
        file = Path(folder, "fed.json")
        file.write_text(json.dumps(rows))
        try:
            with _in_environment({FED: str(file)}):
                yield
        finally:
            if file.exists():  # no stage has begun, with whose tasks the processes end that hold the rows
                with suppress(Exception):  # the application may have ended
                    release(spark, rows)


@contextmanager
def said_plainly() -> Iterator[None]:
    """Raise VolaryError, with what Python raised first, if what is done meanwhile cannot be computed."""
    try:
        yield
    except Exception as error:  # Spark raises Java's errors by many names
        raise VolaryError(f"the frame cannot be computed: {cause(error)}") from error


def _lacks(spark: Any, workers: int) -> str | None:
    """Why the application cannot hold so many workers, as far as is known."""
    return lacks(resources(spark, connect=not hasattr(spark, "_jsparkSession")), workers)


def _require_fit(spark: Any, session: Session, frames: HandedFrames) -> None:
    from volary.spark.fitting import TRIED_ROWS, require_fit  # and PyTorch, once something is to be trained

    for view in filter(None, (frames.train, frames.test)):
        with said_plainly():
            rows = rows_of(spark, view).limit(TRIED_ROWS).toArrow()
        require_fit(session, rows.to_batches(), frames.layout, frames.classes)


def _layout_of(frame: Any, inputs: Sequence[str], target: str, shape: Sequence[int]) -> ColumnLayout:
    return layout_of({name: AS_ARRAYS.get(kind, kind) for name, kind in frame.dtypes}, inputs, target, shape)


def _counted(frame: Any, whole: str | None) -> tuple[int, int]:
    """How many rows a frame has, and the largest of its whole targets; -1: there is none."""
    functions = import_module("pyspark.sql.functions")
    top = functions.lit(None) if whole is None else functions.max(functions.col(f"`{whole}`").cast("bigint"))
    (row,) = frame.agg(functions.count("*").alias("rows"), top.alias("top")).collect()
    return int(row["rows"]), -1 if row["top"] is None else int(row["top"])


def without_vectors(frame: Any, name: str) -> Any:
    """A column of a frame; of vectors of pyspark.ml as arrays, which Arrow has."""
    if dict(frame.dtypes)[name] == "vector":
        return import_module("pyspark.ml.functions").vector_to_array(name)
    return frame[name]


@contextmanager
def _in_environment(given: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in given}
    os.environ |= given
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
