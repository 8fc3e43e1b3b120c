"""Rows that processes hold, asked for over real sockets by their numbers: without Spark, which only hands them over."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from volary.comm.control.connection import Connection
from volary.comm.control.errors import ConnectionLost, KeyRefused
from volary.comm.control.server import KeyedServer
from volary.errors import BadInput, DataError
from volary.executors.arrays import ColumnLayout, layout_of
from volary.executors.frame import SERVICE, HandedFrames, HeldRows
from volary.executors.holding import HoldOrder, claimed, hold, left_behind, look_after
from volary.executors.row_store import RowStore
from volary.executors.stage import FRAME
from volary.executors.stage import KEY as KEY_NAME
from volary.spark.rows import FrameRows, open_rows

pa = pytest.importorskip("pyarrow")

LAYOUT = layout_of({"x": "array<float>", "y": "int"}, ["x"], "y")
KEY = secrets.token_bytes(32)
BLOCK = 1024
ROWS = 2 * BLOCK + 7


def batch(partition: int, first: int, rows: int, width: int = 2) -> Any:
    """FrameRows of a partition from an offset on, whose values tell where they are from."""
    offsets = np.arange(first, first + rows)
    values = np.stack([np.full(rows, partition), offsets] + [offsets] * (width - 2), axis=1).astype(np.float32)
    return pa.RecordBatch.from_pydict(
        {
            "x": pa.array(values.tolist(), pa.list_(pa.float32())),
            "y": pa.array(offsets % 10, pa.int32()),
            "volary_position": pa.array(partition * 2**33 + offsets, pa.int64()),
        }
    )


@pytest.fixture
def tasks() -> Iterator[list[dict[str, Any]]]:
    """Announcements of processes while they serve: of partitions 9, 0 and 7, and of validation data."""
    first = [batch(9, 0, 2), batch(0, 0, BLOCK), batch(0, BLOCK, 5)]
    with ExitStack() as serving:
        yield [announced(serving, *one) for one in ((first, 0), ([batch(7, 0, BLOCK)], 0), ([batch(0, 0, 3)], 1))]


def announced(serving: ExitStack, batches: list[Any], split: int = 0, layout: ColumnLayout = LAYOUT) -> dict[str, Any]:
    held = HeldRows(batches, layout)
    host, port = serving.enter_context(KeyedServer(KEY, {SERVICE: held})).address
    told: dict[str, Any] = json.loads(json.dumps(held.announcement(split) | {"host": host, "port": port}))
    return told


def test_rows_come_by_their_place_in_the_frame_from_whoever_has_them(tasks):
    with closing(FrameRows(tasks, 0, KEY, ROWS, 10)) as rows:
        come_from_whoever_has_them(rows)
    assert len(FrameRows(tasks, 1, KEY, 3, 10)) == 3


def come_from_whoever_has_them(rows: FrameRows) -> None:
    assert (len(rows), rows.input_shape, rows.input_dtype, rows.classes) == (ROWS, (2,), torch.float32, 10)
    wanted = torch.tensor([ROWS - 1, 0, BLOCK + 5, 3, BLOCK + 4])
    inputs, targets = rows.fetch(wanted)
    assert inputs.tolist() == [[9, 1], [0, 0], [7, 0], [0, 3], [0, BLOCK + 4]]
    assert targets.tolist() == [1, 0, 0, 3, (BLOCK + 4) % 10]
    nothing, _ = rows.fetch(torch.empty(0, dtype=torch.int64))
    assert nothing.shape == (0, 2)


def test_what_is_asked_for_ahead_is_what_comes_also_after_a_batch_that_nobody_takes(tasks):
    batches = [torch.tensor([number, BLOCK + 5 + number]) for number in range(4)]
    with closing(FrameRows(tasks, 0, KEY, ROWS, 10)) as rows:
        assert [rows.prefetch(one, 0) for one in batches] == [True, True, True, False]
        for one in (batches[1], batches[3]):
            assert rows.take(one, 0)[0][:, 1].tolist() == [float(one[0]), float(one[0])]


def test_bytes_become_values_from_0_to_1(tasks):
    layout = layout_of({"x": "binary", "y": "double"}, ["x"], "y", (1, 2))
    plain = batch(0, 0, 2)
    columns = {"x": pa.array([b"\x00\xff", b"\x33\x66"]), "y": pa.array([0.5, 1.5])}
    columns |= {name: plain.column(name) for name in ("volary_position",)}
    with ExitStack() as serving:
        told = [announced(serving, [pa.RecordBatch.from_pydict(columns)], layout=layout)]
        rows = serving.enter_context(closing(FrameRows(told, 0, KEY, 2, None)))
        inputs, targets = rows.fetch(torch.tensor([1, 0]))
        assert rows.take(torch.tensor([1]), 0)[0].dtype == torch.uint8
    torch.testing.assert_close(inputs, torch.tensor([[[0.2, 0.4]], [[0.0, 1.0]]]))
    assert (targets.tolist(), rows.classes) == ([1.5, 0.5], None)


def test_nobody_without_the_key_gets_rows(tasks):
    with closing(FrameRows(tasks, 0, secrets.token_bytes(32), ROWS, 10)) as rows, pytest.raises(KeyRefused):
        rows.fetch(torch.tensor([0]))


def test_inputs_that_differ_in_size_are_refused_within_a_task_and_between_tasks(tasks):
    with pytest.raises(BadInput, match=r"column 'x' has arrays of \(2,\) and of \(3,\); accepted: arrays of one size"):
        HeldRows([batch(0, 0, 2), batch(0, 2, 2, width=3)], LAYOUT)
    with ExitStack() as serving, pytest.raises(DataError, match=r"inputs of the shapes \[2\], \[2\], \[2\], \[3\]"):
        FrameRows([*tasks, announced(serving, [batch(11, 0, 2, width=3)])], 0, KEY, ROWS + 2, 10)


def test_rows_beyond_the_bound_of_memory_are_in_a_file_without_a_name_and_are_the_same(monkeypatch):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(Path.cwd()))
    parts = [np.arange(first, first + 5, dtype=np.int64) for first in range(0, 40, 5)]
    places = np.array([39, 0, 17, 17, 20])
    for keep_bytes, in_memory in ((10_000, True), (200, False), (0, False)):
        store = RowStore(keep_bytes)
        for part in parts:
            store.append(part.reshape(-1, 1), part.astype(np.float32))
        store.close()
        assert store.in_memory == in_memory
        inputs, targets = store.take(places)
        assert (inputs.tolist(), targets.tolist()) == ([[one] for one in places], places.tolist())
    assert list(Path().iterdir()) == []


def test_a_worker_says_what_was_wrong_with_rows_that_a_task_took(monkeypatch):
    """The task is this process, which has met no Spark."""
    nulls = pa.RecordBatch.from_pydict({**batch(1, 0, 1).to_pydict(), "x": pa.array([None], pa.list_(pa.float32()))})
    order = HoldOrder(key=KEY.hex(), split=0, layout=LAYOUT, towards="", keep_bytes=0)
    monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(TaskContext=SimpleNamespace(get=lambda: FirstAttempt)))
    (said,) = (json.loads(row["answer"]) for one in hold(order.words(), iter([nulls])) for row in one.to_pylist())
    Path("rows.json").write_text(json.dumps({"rows": [1, 0], "classes": 10, "seconds": 1.0, "tasks": [said]}))
    monkeypatch.setitem(os.environ, KEY_NAME, KEY.hex())
    monkeypatch.setitem(os.environ, "VOLARY_SPARK_ROWS", "rows.json")
    with pytest.raises(DataError, match="data: column 'x' has 1 nulls in a batch"):
        open_rows("train")


class FirstAttempt:
    """Spark's account of a task."""

    @staticmethod
    def attemptNumber() -> int:  # noqa: N802  # Spark's name
        return 0


def test_a_process_that_a_task_leaves_behind_serves_its_rows_until_nobody_claims_them_any_more():
    held = HeldRows([batch(4, 0, 20)], LAYOUT)
    host, port = left_behind(held, KEY, "127.0.0.1", psutil.Process())
    told = json.loads(json.dumps(held.announcement(0) | {"host": host, "port": port}))
    with claimed(told, KEY), claimed(told, KEY), closing(FrameRows([told], 0, KEY, 20, 10)) as rows:
        assert rows.fetch(torch.tensor([19, 0]))[0].tolist() == [[4, 19], [4, 0]]
        (mine,) = (one.pid for one in psutil.process_iter() if one.pid != os.getpid() and listens(one.pid, port))
    assert gone(mine)
    with pytest.raises(
        RuntimeError, match=r"rows of the frame are lost with their executor on 127\.0\.0\.1: no server"
    ):
        claimed(told, KEY)


def test_it_ends_with_its_executor_and_when_nobody_has_claimed_the_rows(monkeypatch):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as executor:
        there = psutil.Process(executor.pid)
        first = left_behind(HeldRows([batch(4, 0, 2)], LAYOUT), KEY, "127.0.0.1", there)
        monkeypatch.setattr("volary.executors.holding.UNCLAIMED_S", 0.0)
        assert ends(left_behind(HeldRows([batch(4, 0, 2)], LAYOUT), KEY, "127.0.0.1", there))
        Connection.open(*first, KEY, SERVICE, {}).close()
        executor.kill()
        assert ends(first)


def test_rows_of_which_some_are_lost_are_all_let_go_so_that_they_are_taken_again():
    there = left_behind(HeldRows([batch(4, 0, 2)], LAYOUT), KEY, "127.0.0.1", psutil.Process())
    with ExitStack() as serving:
        lost = announced(serving, [batch(5, 0, 2)])
    held = [{"host": there[0], "port": there[1]}]
    assert looked_after(held) == ""
    Connection.open(*there, KEY, SERVICE, {}).close()
    assert "no server listens at" in looked_after([*held, lost])
    assert ends(there)


def test_rows_that_no_stage_needs_are_let_go():
    there = left_behind(HeldRows([batch(4, 0, 2)], LAYOUT), KEY, "127.0.0.1", psutil.Process())
    assert looked_after([{"host": there[0], "port": there[1]}], release=True) == ""
    assert ends(there)


def looked_after(held: list[dict[str, Any]], *, release: bool = False) -> str:
    (said,) = look_after(json.dumps({"key": KEY.hex(), "held": held, "release": release}), iter(()))
    return str(said.to_pylist()[0]["answer"])


def listens(pid: int, port: int) -> bool:
    try:
        return any(one.laddr.port == port for one in psutil.Process(pid).net_connections() if one.status == "LISTEN")
    except psutil.Error:
        return False


def gone(pid: int, within_s: float = 20) -> bool:
    return reached(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie", within_s)


def ends(address: tuple[str, int], within_s: float = 20) -> bool:
    def refused() -> bool:
        try:
            Connection.open(*address, KEY, SERVICE, {}).close()
        except ConnectionLost:
            return True
        return False

    return reached(refused, within_s)


def reached(condition: Callable[[], bool], within_s: float) -> bool:
    end_s = time.monotonic() + within_s
    while not (met := condition()) and time.monotonic() < end_s:
        time.sleep(0.05)
    return met


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
    Path("rows.json").write_text(json.dumps({"rows": [0, 0], "classes": None, "seconds": 0.0, "tasks": []}))
    monkeypatch.setitem(os.environ, "VOLARY_SPARK_ROWS", "rows.json")
    monkeypatch.setitem(os.environ, KEY_NAME, KEY.hex())
    with pytest.raises(DataError, match="data is empty"):
        open_rows("train")
    with pytest.raises(DataError, match=r"no validation data; accepted: validation=..., or the setting evaluate"):
        open_rows("test")
