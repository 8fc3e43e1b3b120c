"""The size of an Arrow file's decompressed buffers is known from the file; a senseless one is refused."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from volary.data.tables.arrow_size import unpacked_bytes

arrow = pytest.importorskip("pyarrow")
ipc = pytest.importorskip("pyarrow.ipc")


def content(kind: str, compression: str | None) -> bytes:
    table = arrow.table({"x": np.zeros(2000), "name": arrow.array(["abc"] * 2000).dictionary_encode()})
    sink, options = arrow.BufferOutputStream(), ipc.IpcWriteOptions(compression=compression)
    with getattr(ipc, f"new_{kind}")(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=600)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("kind", ["file", "stream"])
@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_it_is_the_size_of_all_columns_and_dictionaries(kind, compression):
    numbers, indices, words = 2000 * 8, 2000 * 4, 3 + 2 * 4
    assert unpacked_bytes(arrow, arrow.py_buffer(content(kind, compression))) == numbers + indices + words


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_without_compression_nothing_comes_out(kind):
    assert unpacked_bytes(arrow, arrow.py_buffer(content(kind, None))) == 0


@given(st.sampled_from(["file", "stream"]), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1))
def test_whatever_bytes_are_changed_it_is_a_number_or_a_refusal(kind, changes):
    changed = bytearray(content(kind, "lz4"))
    for place, value in changes:
        changed[place % len(changed)] = value
    with suppress(arrow.ArrowException, OSError):
        assert unpacked_bytes(arrow, arrow.py_buffer(bytes(changed))) >= 0
