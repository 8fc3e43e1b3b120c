"""A header says everything it was made with, and what is none is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volary.comm.control.errors import BadFrame
from volary.server.protocol.header import HEADER_BYTES, Form, Header, MessageKind

SHORT, LONG = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
HEADERS = st.builds(
    Header, st.sampled_from(MessageKind), SHORT, SHORT, LONG, LONG, st.sampled_from(Form), SHORT, LONG, LONG
)


@given(HEADERS)
def test_a_header_comes_back_from_its_bytes(header):
    data = header.pack()
    assert len(data) == HEADER_BYTES
    assert Header.unpack(data) == header


@given(HEADERS)
def test_the_last_eight_bytes_are_the_length(header):
    assert int.from_bytes(header.pack()[-8:], "little") == header.length


@given(st.binary(max_size=2 * HEADER_BYTES))
def test_other_bytes_are_refused(data):
    try:
        header = Header.unpack(data)
    except BadFrame:
        return
    assert header.pack() == data


@given(HEADERS, st.integers(0, 3), st.integers(0, 255))
def test_a_header_with_an_unknown_beginning_kind_or_form_is_refused(header, at, byte):
    data = bytearray(header.pack())
    data[at] = byte
    known = data[:2] == b"Vs" and data[2] in list(MessageKind) and data[3] in list(Form)
    if known:
        assert Header.unpack(bytes(data)).pack() == data
    else:
        with pytest.raises(BadFrame):
            Header.unpack(bytes(data))
