"""Whatever somebody on the way does to what is sent, nothing of it is taken for a message, and the channel ends."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comm.transports._pairs import WITHIN_S, Cut, anywhere, header
from volary.comm.channels.channel import HEADER_BYTES, payload_bytes
from volary.comm.channels.tcp import PIECE_BYTES
from volary.comm.control.errors import BadFrame, ConnectionLost
from volary.comm.control.sealing import TAG_BYTES

HEAD_BYTES = HEADER_BYTES + TAG_BYTES
payloads = st.sampled_from([b"", b"x", b"values" * 100])
FEW = settings(max_examples=30)
SEALED = pytest.mark.parametrize("sealed", [True, False], ids=["encrypted", "authenticated"])


def heard(cut: Cut, data: bytes) -> Iterator[bytes]:
    """Payloads of the messages that the receiver takes from `data`, until its channel has ended as it should."""
    cut.say(data)
    while True:
        try:
            message = cut.receiver.receive(small, WITHIN_S)
        except (BadFrame, ConnectionLost):
            break
        yield bytes(message.payload or b"")
    with pytest.raises(ConnectionLost):
        cut.receiver.receive(small, WITHIN_S)


def small(header: bytes) -> memoryview | None:
    if payload_bytes(header) > 2**20:
        raise BadFrame("too long")
    return anywhere(header)


def sent(cut: Cut, said: list[bytes]) -> list[bytes]:
    """Each message as it travels."""
    found = []
    for payload in said:
        cut.sender.send(header(len(payload)), memoryview(payload) if payload else None)
        found.append(cut.said())
    return found


@SEALED
@FEW
@given(said=st.lists(payloads, max_size=4))
def test_what_nobody_touches_arrives(sealed: bool, said: list[bytes]) -> None:
    with closing(Cut(sealed)) as cut:
        assert list(heard(cut, b"".join(sent(cut, said)))) == said


@FEW
@given(said=st.lists(payloads, min_size=1, max_size=4), drawn=st.data())
def test_a_flipped_bit_ends_an_encrypted_channel_before_its_message(said: list[bytes], drawn: st.DataObject) -> None:
    with closing(Cut(sealed=True)) as cut:
        wire = bytearray(b"".join(sent(cut, said)))
        bit = drawn.draw(st.integers(0, 8 * len(wire) - 1))
        wire[bit // 8] ^= 1 << bit % 8
        taken = list(heard(cut, bytes(wire)))
        assert taken == said[: len(taken)]
        assert len(taken) < len(said)


@FEW
@given(bit=st.integers(0, 8 * HEAD_BYTES - 1))
def test_a_flipped_bit_in_a_header_ends_an_authenticated_channel(bit: int) -> None:
    with closing(Cut(sealed=False)) as cut:
        wire = bytearray(b"".join(sent(cut, [b"values"])))
        wire[bit // 8] ^= 1 << bit % 8
        assert list(heard(cut, bytes(wire))) == []


@SEALED
@FEW
@given(drawn=st.data())
def test_replayed_reordered_and_missing_messages_are_not_taken(sealed: bool, drawn: st.DataObject) -> None:
    with closing(Cut(sealed)) as cut:
        said = [b"%d" % number * 20 for number in range(4)]
        wire = sent(cut, said)
        order = drawn.draw(st.lists(st.integers(0, 3), min_size=1, max_size=6))
        taken = list(heard(cut, b"".join(wire[number] for number in order)))
        in_order = next((n for n, number in enumerate(order) if number != n), len(order))
        assert taken == said[:in_order]


@SEALED
@FEW
@given(drawn=st.data())
def test_half_a_message_is_none(sealed: bool, drawn: st.DataObject) -> None:
    with closing(Cut(sealed)) as cut:
        (wire,) = sent(cut, [b"values" * 100])
        assert list(heard(cut, wire[: drawn.draw(st.integers(0, len(wire) - 1))])) == []


@SEALED
@FEW
@given(data=st.binary(min_size=1, max_size=300))
def test_random_bytes_are_no_message(sealed: bool, data: bytes) -> None:
    with closing(Cut(sealed)) as cut:
        assert list(heard(cut, data)) == []


@SEALED
def test_a_length_without_bound_takes_no_memory(sealed: bool) -> None:
    with closing(Cut(sealed)) as cut:
        cut.sender.send(header(2**64 - 1))
        assert list(heard(cut, cut.said())) == []


@pytest.mark.parametrize("swapped", [False, True])
def test_pieces_of_a_large_payload_cannot_be_swapped(swapped: bool) -> None:
    payload = bytes(range(256)) * (5 * PIECE_BYTES // 512)
    sealed_piece = PIECE_BYTES + TAG_BYTES
    with closing(Cut(sealed=True)) as cut, ThreadPoolExecutor() as pool:
        pool.submit(cut.sender.send, header(len(payload)), memoryview(payload))
        wire = cut.said(HEAD_BYTES + len(payload) + 3 * TAG_BYTES)
        first, second = HEAD_BYTES + sealed_piece, HEAD_BYTES + 2 * sealed_piece
        if swapped:
            wire = wire[:HEAD_BYTES] + wire[first:second] + wire[HEAD_BYTES:first] + wire[second:]
        pool.submit(cut.say, wire)
        if swapped:
            with pytest.raises(BadFrame):
                cut.receiver.receive(anywhere, WITHIN_S)
        else:
            assert cut.receiver.receive(anywhere, WITHIN_S).payload == payload


@SEALED
def test_whoever_stops_in_the_middle_of_a_message_is_given_up(sealed: bool) -> None:
    with closing(Cut(sealed, stall_s=0.05)) as cut:
        (wire,) = sent(cut, [b"values" * 100])
        cut.say(wire[:-1], end=False)
        with pytest.raises(ConnectionLost, match="stopped in the middle of a message"):
            cut.receiver.receive(anywhere, WITHIN_S)


def test_whoever_reads_nothing_is_given_up() -> None:
    stopped = r"stopped in the middle of a message for 0\.05 s"
    with closing(Cut(sealed=True, stall_s=0.05)) as cut, pytest.raises(ConnectionLost, match=stopped):
        cut.sender.send(header(2**24), memoryview(bytes(2**24)))
