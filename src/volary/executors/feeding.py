"""Jobs of Spark by which processes on the executors take the rows of a run's frames: without a shuffle or a sort."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from volary.executors.frame import HandedFrames, rows_of
from volary.executors.holding import HoldOrder, hold, look_after
from volary.executors.sent import sent

EACH = 4  # processes for each worker: partitions beyond them are taken one after another
_TRIES = 4


def fed(spark: Any, frames: HandedFrames, workers: int) -> dict[str, Any]:
    """Let rows of both frames be taken where they are computed, and return what workers are to know of them.

    That is which processes hold which rows, the key of connections to these, and the seconds that it took. Executors
    that are lost meanwhile cost nothing but time. Raises RuntimeError if it happens `_TRIES` times.
    """
    began_s, key = time.perf_counter(), secrets.token_hex(32)
    for _ in range(_TRIES):
        answers = [json.loads(words) for words in _announced(spark, frames, workers, key)]
        held = [one for one in answers if "port" in one or "refused" in one]
        if not any(one["attempt"] for one in answers) or not (lost := _asked(spark, held, key, release=False)):
            break
    else:
        raise RuntimeError(f"executors were lost {_TRIES} times while rows of the frame were taken: {lost}")
    seconds = time.perf_counter() - began_s
    return {"rows": frames.rows, "classes": frames.classes, "seconds": seconds, "key": key, "tasks": held}


def release(spark: Any, rows: Mapping[str, Any]) -> None:
    """Let the processes end that hold what `fed` has returned, and that no stage needs."""
    _asked(spark, rows["tasks"], rows["key"], release=True)


def _announced(spark: Any, frames: HandedFrames, workers: int, key: str) -> list[str]:
    master = spark.conf.get("spark.master", "")
    towards = "" if master.startswith("local") else spark.conf.get("spark.driver.host", "unknown.invalid")
    words: list[str] = []
    for split, view in enumerate((frames.train, frames.test)):
        if view is not None:
            order = HoldOrder(
                key=key,
                split=split,
                layout=frames.layout,
                towards=towards,
                keep_bytes=frames.keep_bytes // EACH,
            )
            rows = rows_of(spark, view).coalesce(EACH * workers)
            words += [
                row["answer"] for row in rows.mapInArrow(sent(partial(hold, order.words())), "answer string").collect()
            ]
    return words


def _asked(spark: Any, held: Sequence[Mapping[str, Any]], key: str, *, release: bool) -> str:
    """Say which of these processes is lost; empty if none is. If one is, or with `release`, the others end."""
    where = [{"host": one["host"], "port": one["port"]} for one in held if "port" in one]
    order = {"key": key, "held": where, "release": release}
    look = spark.range(0, 1, 1, 1).mapInArrow(sent(partial(look_after, json.dumps(order))), "answer string")
    (row,) = look.collect()
    return str(row["answer"])
