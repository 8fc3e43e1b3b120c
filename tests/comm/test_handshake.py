"""The handshake without a network: what convinces, and all that must not."""

from __future__ import annotations

import pytest

from volary.comm.errors import BadFrame, KeyRefused, OtherLife
from volary.comm.frames import HEADER_BYTES, decode, encode
from volary.comm.handshake import VERSION, Answer, Challenge, ClientSide, Opening, ServerSide, Verdict, prove
from volary.errors import BadInput

KEY, OTHER_KEY = b"k" * 32, b"o" * 32


def body(frame: bytes) -> bytes:
    return frame[HEADER_BYTES:]


def server(key: bytes = KEY, life: str = "now") -> ServerSide:
    return ServerSide(key, life, {"board", "pulse"}, sealed_only=False)


def agree(client: ClientSide, there: ServerSide) -> tuple[str, str]:
    """The life that the client learns, and why the server would close."""
    challenge, _ = there.receive(body(client.opening()))
    verdict, refusal = there.receive(body(client.answer(body(challenge))))
    return client.judge(body(verdict)), refusal


def test_both_sides_with_the_key_agree() -> None:
    there = server()
    assert agree(ClientSide(KEY, "board", "now", sealed=False), there) == ("now", "")
    assert there.service == "board"


def test_a_client_without_the_key_is_refused_and_no_service_opens() -> None:
    there = server()
    with pytest.raises(KeyRefused, match="not the run's key"):
        agree(ClientSide(OTHER_KEY, "board", None, sealed=False), there)
    assert there.service is None


def test_a_server_without_the_key_is_refused_although_it_agrees() -> None:
    client = ClientSide(KEY, "board", None, sealed=False)
    client.answer(body(encode(Challenge(b"n" * 32, "now"))))
    with pytest.raises(KeyRefused, match="does not prove"):
        client.judge(body(encode(Verdict("", b"p" * 32))))


def test_a_client_of_another_life_is_told_so_by_a_proven_server() -> None:
    there = server(life="second")
    with pytest.raises(OtherLife, match="life second, this process of life first"):
        agree(ClientSide(KEY, "board", "first", sealed=False), there)
    assert there.service is None


def test_a_service_that_is_not_there_is_named() -> None:
    with pytest.raises(KeyRefused, match="no service 'page'"):
        agree(ClientSide(KEY, "page", None, sealed=False), server())


def test_a_recorded_conversation_convinces_no_second_server() -> None:
    client, first, second = ClientSide(KEY, "board", None, sealed=False), server(), server()
    challenge, _ = first.receive(body(client.opening()))
    answer = client.answer(body(challenge))
    assert first.receive(body(answer))[1] == ""
    second.receive(body(client.opening()))
    frame, refusal = second.receive(body(answer))
    assert refusal == "wrong proof of the key"
    assert decode(body(frame)) == {"refused": "key", "proof": b""}
    assert second.service is None


def test_the_proof_of_one_role_is_not_that_of_the_other() -> None:
    client = ClientSide(KEY, "board", None, sealed=False)
    answer = client.answer(body(encode(Challenge(b"n" * 32, "now"))))
    with pytest.raises(KeyRefused):
        client.judge(body(encode(Verdict("", decode(body(answer))["proof"]))))


def test_a_yes_cannot_be_made_of_a_proven_no() -> None:
    client, there = ClientSide(KEY, "page", None, sealed=False), server()
    challenge, _ = there.receive(body(client.opening()))
    verdict, _ = there.receive(body(client.answer(body(challenge))))
    with pytest.raises(KeyRefused, match="does not prove"):
        client.judge(body(encode(Verdict("", decode(body(verdict))["proof"]))))


def test_every_part_that_was_agreed_is_in_the_proof() -> None:
    opening, challenge = Opening(VERSION, "board", b"c" * 32, None, False), Challenge(b"s" * 32, "now")
    proofs = {
        prove(KEY, "client", opening, challenge),
        prove(OTHER_KEY, "client", opening, challenge),
        prove(KEY, "server ", opening, challenge),
        prove(KEY, "client", Opening(VERSION, "pulse", b"c" * 32, None, False), challenge),
        prove(KEY, "client", Opening(VERSION, "board", b"d" * 32, None, False), challenge),
        prove(KEY, "client", opening, Challenge(b"t" * 32, "now")),
        prove(KEY, "client", opening, Challenge(b"s" * 32, "new")),
        prove(KEY, "client", Opening(VERSION, "boardn", b"c" * 32, None, False), Challenge(b"s" * 32, "ow")),
    }
    assert len(proofs) == 8


@pytest.mark.parametrize(
    "opening",
    [
        Opening(VERSION - 1, "board", b"n" * 32, None, False),
        Opening(VERSION, "board", b"", None, False),
        {"version": 1},
        Answer(b"x" * 32),
        [1, 2],
        None,
        {"version": 1, "service": "board", "nonce": b"n" * 32, "life": None, "more": 1},
    ],
)
def test_an_opening_of_another_shape_is_a_bad_frame(opening: object) -> None:
    with pytest.raises(BadFrame):
        server().receive(body(encode(opening)))


def test_a_short_key_is_no_key() -> None:
    with pytest.raises(BadInput, match="3 bytes; accepted: at least 16"):
        ClientSide(b"abc", "board", None, sealed=False)
