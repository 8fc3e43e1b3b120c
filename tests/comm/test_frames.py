"""Frames: any cutting of a stream gives the same messages, and nothing that is sent can hurt the reader."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volary.comm.control.errors import BadFrame
from volary.comm.control.frames import FrameReader, decode, encode

MESSAGES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(MESSAGES, max_size=5), st.lists(st.integers(1, 40)))
def test_a_stream_cut_anywhere_gives_the_same_messages(messages: list[object], cuts: list[int]) -> None:
    stream = b"".join(map(encode, messages))
    reader, got = FrameReader(), []
    for size in [*cuts, len(stream)]:
        reader.feed(stream[:size])
        stream = stream[size:]
        while (body := reader.take()) is not None:
            got.append(decode(body))
    assert got == messages


@given(st.lists(st.binary(max_size=200), max_size=20), st.integers(0, 64))
def test_garbage_gives_messages_or_bad_frame_and_never_more_memory_than_one_frame(
    chunks: list[bytes], limit_bytes: int
) -> None:
    reader = FrameReader(limit_bytes)
    for chunk in chunks:
        reader.feed(chunk)
        try:
            while (body := reader.take()) is not None:
                assert len(body) <= limit_bytes
                _decode_or_refuse(body)
        except BadFrame:
            return
        assert len(reader._pending) < 4 + limit_bytes


@given(st.binary(max_size=300))
def test_any_body_decodes_or_is_a_bad_frame(body: bytes) -> None:
    _decode_or_refuse(body)


def _decode_or_refuse(body: bytes) -> None:
    try:
        decode(body)
    except BadFrame:
        return


@pytest.mark.parametrize("announced", [4097, 2**24, 2**31, 2**32 - 1])
def test_an_announced_length_above_the_limit_is_refused_before_a_byte_of_it_is_there(announced: int) -> None:
    reader = FrameReader(4096)
    reader.feed(announced.to_bytes(4, "big"))
    with pytest.raises(BadFrame, match=f"announces {announced} bytes; accepted: up to 4096"):
        reader.take()


@pytest.mark.parametrize(
    "body", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\x91" * 5000]
)
def test_a_body_that_lies_about_its_sizes_or_nests_without_end_is_a_bad_frame(body: bytes) -> None:
    with pytest.raises(BadFrame):
        decode(body)


def test_a_message_above_the_limit_is_refused_by_its_sender() -> None:
    with pytest.raises(BadFrame, match="above the limit of 100 bytes"):
        encode(b"x" * 200, limit_bytes=100)
