"""Rows that tasks hold, asked for over real sockets by their numbers: without Spark, which only hands them over."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from spark.test_collectives import Meeting
from volary.comm.control.errors import KeyRefused
from volary.comm.control.server import KeyedServer
from volary.errors import BadInput, DataError
from volary.executors.arrays import ColumnLayout, layout_of
from volary.executors.frame import SERVICE, HandedFrames, HeldRows
from volary.executors.ledger import BLOCK
from volary.executors.row_store import RowStore
from volary.executors.stage import FRAME
from volary.executors.stage import KEY as KEY_NAME
from volary.executors.task import served
from volary.spark.rows import FrameRows, open_rows

pa = pytest.importorskip("pyarrow")

LAYOUT = layout_of({"x": "array<float>", "y": "int"}, ["x"], "y")
KEY = secrets.token_bytes(32)


def batch(partition: int, first: int, rows: int, split: int = 0, width: int = 2) -> Any:
    """FrameRows of a partition from an offset on, whose values tell where they are from."""
    offsets = np.arange(first, first + rows)
    values = np.stack([np.full(rows, partition), offsets] + [offsets] * (width - 2), axis=1).astype(np.float32)
    return pa.RecordBatch.from_pydict(
        {
            "x": pa.array(values.tolist(), pa.list_(pa.float32())),
            "y": pa.array(offsets % 10, pa.int32()),
            "volary_position": pa.array(partition * 2**33 + offsets, pa.int64()),
            "volary_split": pa.array([split] * rows, pa.int32()),
        }
    )


@pytest.fixture
def tasks() -> Iterator[list[dict[str, Any]]]:
    """What three tasks announce while they serve: two partitions and validation data, and nothing at all."""
    first = [batch(0, 0, BLOCK), batch(7, BLOCK, 5), batch(0, 0, 3, split=1)]
    with ExitStack() as serving:
        yield [announced(serving, held) for held in (first, [batch(7, 0, BLOCK)], [])]


def announced(serving: ExitStack, batches: list[Any], layout: ColumnLayout = LAYOUT) -> dict[str, Any]:
    held = HeldRows(batches, layout)
    server = serving.enter_context(KeyedServer(KEY, {SERVICE: held}))
    told: dict[str, Any] = json.loads(json.dumps(held.announcement(*server.address, 0)))
    return told


def test_rows_come_by_their_place_in_the_frame_from_whoever_has_them(tasks):
    with closing(FrameRows(tasks, 0, KEY, 2 * BLOCK + 5, 10)) as rows:
        come_from_whoever_has_them(rows)
    assert len(FrameRows(tasks, 1, KEY, 3, 10)) == 3


def come_from_whoever_has_them(rows: FrameRows) -> None:
    assert (len(rows), rows.input_shape, rows.input_dtype, rows.classes) == (2 * BLOCK + 5, (2,), torch.float32, 10)
    wanted = torch.tensor([2 * BLOCK + 4, 0, BLOCK, 3, BLOCK - 1])
    inputs, targets = rows.fetch(wanted)
    assert inputs.tolist() == [[7, BLOCK + 4], [0, 0], [7, 0], [0, 3], [0, BLOCK - 1]]
    assert targets.tolist() == [(BLOCK + 4) % 10, 0, 0, 3, (BLOCK - 1) % 10]
    nothing, _ = rows.fetch(torch.empty(0, dtype=torch.int64))
    assert nothing.shape == (0, 2)


def test_what_is_asked_for_ahead_is_what_comes_also_after_a_batch_that_nobody_takes(tasks):
    batches = [torch.tensor([number, BLOCK + number]) for number in range(4)]
    with closing(FrameRows(tasks, 0, KEY, 2 * BLOCK + 5, 10)) as rows:
        assert [rows.prefetch(one, 0) for one in batches] == [True, True, True, False]
        for one in (batches[1], batches[3]):
            assert rows.take(one, 0)[0][:, 1].tolist() == [float(one[0]), float(one[0])]


def test_bytes_become_values_from_0_to_1(tasks):
    layout = layout_of({"x": "binary", "y": "double"}, ["x"], "y", (1, 2))
    plain = batch(0, 0, 2)
    columns = {"x": pa.array([b"\x00\xff", b"\x33\x66"]), "y": pa.array([0.5, 1.5])}
    columns |= {name: plain.column(name) for name in ("volary_position", "volary_split")}
    with ExitStack() as serving:
        told = [announced(serving, [pa.RecordBatch.from_pydict(columns)], layout)]
        rows = serving.enter_context(closing(FrameRows(told, 0, KEY, 2, None)))
        inputs, targets = rows.fetch(torch.tensor([1, 0]))
        assert rows.take(torch.tensor([1]), 0)[0].dtype == torch.uint8
    torch.testing.assert_close(inputs, torch.tensor([[[0.2, 0.4]], [[0.0, 1.0]]]))
    assert (targets.tolist(), rows.classes) == ([1.5, 0.5], None)


def test_nobody_without_the_key_gets_rows(tasks):
    with closing(FrameRows(tasks, 0, secrets.token_bytes(32), 2 * BLOCK + 5, 10)) as rows, pytest.raises(KeyRefused):
        rows.fetch(torch.tensor([0]))


def test_inputs_that_differ_in_size_are_refused_within_a_task_and_between_tasks(tasks):
    with pytest.raises(
        BadInput, match=r"rows have inputs \(2,\), targets \(\) and inputs \(3,\), targets \(\); accepted"
    ):
        HeldRows([batch(0, 0, 2), batch(0, 2, 2, width=3)], LAYOUT)
    with ExitStack() as serving, pytest.raises(DataError, match=r"inputs of the shapes \[2\], \[2\], \[3\]"):
        FrameRows([*tasks, announced(serving, [batch(9, 0, 2, width=3)])], 0, KEY, 2 * BLOCK + 7, 10)


def test_rows_beyond_the_bound_of_memory_are_in_a_file_without_a_name_and_are_the_same(monkeypatch):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(Path.cwd()))
    parts = [np.arange(first, first + 5, dtype=np.int64).view([("x", np.int64)]) for first in range(0, 40, 5)]
    for keep_bytes, in_memory in ((10_000, True), (100, False), (0, False)):
        store = RowStore(keep_bytes)
        for part in parts:
            store.append(part)
        assert store.in_memory == in_memory
        assert store.rows(parts[0].dtype)["x"].tolist() == list(range(40))
    assert list(Path().iterdir()) == []


def test_a_worker_waits_until_all_tasks_have_their_rows_and_says_what_was_wrong_with_those_of_one(monkeypatch):
    """Tasks are threads which have met as tasks do; the second has a null."""
    nulls = pa.RecordBatch.from_pydict({**batch(1, 0, 1).to_pydict(), "x": pa.array([None], pa.list_(pa.float32()))})
    meeting = Meeting(2)
    variables = {KEY_NAME: KEY.hex(), FRAME: HandedFrames("a", None, LAYOUT, [3, 0], 10).words()}

    def task(rank: int) -> None:
        context, mine = meeting.context(rank), [nulls] if rank else [batch(0, 0, 2)]
        with served(context, ["", ""], variables, iter(mine), Path(f"rows-{rank}.json"), 0.0):
            context.barrier()

    monkeypatch.setitem(os.environ, KEY_NAME, KEY.hex())
    monkeypatch.setitem(os.environ, "VOLARY_SPARK_ROWS", "rows-0.json")
    with ThreadPoolExecutor(3) as threads:
        worker = threads.submit(open_rows, "train")
        list(threads.map(task, range(2)))
        with pytest.raises(DataError, match="data: column 'x' has 1 nulls in a batch"):
            worker.result(60)


def test_a_run_that_begins_from_weights_knows_what_rows_are_like_before_they_come(monkeypatch):
    numbers = layout_of({"a": "int", "b": "double", "y": "int"}, ["a", "b"], "y")
    for layout, shape in ((numbers, (2,)), (layout_of({"x": "array<float>", "y": "int"}, ["x"], "y", (1, 2)), (1, 2))):
        monkeypatch.setitem(os.environ, FRAME, HandedFrames("a", None, layout, [7, 0], 3).words())
        rows = open_rows("train")
        assert (len(rows), rows.input_shape, rows.classes) == (7, shape, 3)
    monkeypatch.setitem(os.environ, FRAME, HandedFrames("a", None, LAYOUT, [7, 0], 3).words())
    with pytest.raises(DataError, match="is to know the shape of arrays"):
        open_rows("train")


def test_an_empty_frame_missing_validation_data_and_a_worker_without_a_task_are_told(monkeypatch):
    with pytest.raises(DataError, match=r"are there in runs of volary\.spark\.train"):
        open_rows("train")
    empty = HeldRows([], LAYOUT).announcement("127.0.0.1", 1, 0)
    Path("rows.json").write_text(json.dumps({"rows": [0, 0], "classes": None, "tasks": [empty]}))
    monkeypatch.setitem(os.environ, "VOLARY_SPARK_ROWS", "rows.json")
    monkeypatch.setitem(os.environ, KEY_NAME, KEY.hex())
    with pytest.raises(DataError, match="data is empty"):
        open_rows("train")
    with pytest.raises(DataError, match=r"no validation data; accepted: validation=..., or the setting evaluate"):
        open_rows("test")
