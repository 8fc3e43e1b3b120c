"""The handshake without a network: what convinces, and all that must not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from volary.comm.control import handshake
from volary.comm.control.errors import BadFrame, KeyRefused, OtherAttempt
from volary.comm.control.frames import HEADER_BYTES, decode, decode_as, encode
from volary.comm.control.handshake import (
    VERSION,
    Challenge,
    ClientProof,
    ClientSide,
    Opening,
    ServerSide,
    ServerVerdict,
    Transcript,
    checked_key,
    key_of,
)
from volary.errors import BadInput

KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))
Change = Callable[[bytes], bytes]


def body(frame: bytes) -> bytes:
    return frame[HEADER_BYTES:]


def client(service: str = "board", attempt_id: str | None = None, key: bytes = KEY, sealed: bool = False) -> ClientSide:
    return ClientSide(key, service, attempt_id, sealed)


def server(key: bytes = KEY, attempt_id: str = "now", sealed: bool = False) -> ServerSide:
    return ServerSide(key, attempt_id, {"board", "pulse"}, sealed)


def agree(here: ClientSide, there: ServerSide, **changes: Change) -> tuple[str, str]:
    """The attempt that the client learns, and why the server would close. changes: by frame, on the way."""

    def on_the_way(name: str, frame: bytes) -> bytes:
        return changes.get(name, bytes)(body(frame))

    challenge, _ = there.receive(on_the_way("opening", here.opening()))
    verdict, refusal = there.receive(on_the_way("answer", here.answer(on_the_way("challenge", challenge))))
    return here.judge(on_the_way("verdict", verdict)), refusal


def test_both_sides_with_the_key_agree() -> None:
    there = server()
    assert agree(client(attempt_id="now"), there) == ("now", "")
    assert there.service == "board"


def test_proofs_of_both_sides_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    monkeypatch.setattr("hmac.compare_digest", lambda one, other: compared.append(len(one)) or one == other)
    agree(client(), server())
    assert compared == [32, 32], "the client's, then the server's"


def test_a_client_without_the_key_is_refused_and_no_service_opens() -> None:
    there = server()
    with pytest.raises(KeyRefused, match="not the run's key"):
        agree(client(key=OTHER_KEY), there)
    assert there.service is None


def test_a_server_without_the_key_is_refused_although_it_agrees() -> None:
    here = client()
    here.answer(body(encode(Challenge("now", False, b"n" * 32, b"s" * 32))))
    with pytest.raises(KeyRefused, match="does not prove"):
        here.judge(body(encode(ServerVerdict("", b"p" * 32))))


def test_a_client_of_another_life_is_told_so_by_a_proven_server() -> None:
    there = server(attempt_id="second")
    with pytest.raises(OtherAttempt, match="restart attempt second, this process of restart attempt first"):
        agree(client(attempt_id="first"), there)
    assert there.service is None


def test_a_client_that_has_reached_another_life_leaves_although_that_agrees() -> None:
    class Careless(ServerSide):
        def _judge(self, opening: Opening, proof: bytes) -> tuple[bytes, str]:
            return super()._judge(Opening(VERSION, "board", None, False, b"", b""), proof)

    with pytest.raises(OtherAttempt, match="restart attempt second, this process of restart attempt first"):
        agree(client(attempt_id="first"), Careless(KEY, "second", {"board"}, sealed=False))


def test_a_service_that_is_not_there_is_named() -> None:
    with pytest.raises(KeyRefused, match="no service 'page'"):
        agree(client("page"), server())


@settings(max_examples=300)
@given(frame=st.sampled_from(["opening", "challenge", "answer", "verdict"]), drawn=st.data())
def test_whoever_changes_a_bit_on_the_way_is_refused_by_both_sides(frame: str, drawn: st.DataObject) -> None:
    def flip(said: bytes) -> bytes:
        bit = drawn.draw(st.integers(0, 8 * len(said) - 1))
        changed = bytearray(said)
        changed[bit // 8] ^= 1 << bit % 8
        return bytes(changed)

    there = server()
    with pytest.raises((BadFrame, KeyRefused)):
        agree(client(attempt_id="now"), there, **{frame: flip})
    if frame != "verdict":  # which the server says when it has agreed
        assert there.service is None


def changed(kind: type, **fields: object) -> Change:
    def change(said: bytes) -> bytes:
        before = decode(said)
        assert before.keys() >= fields.keys()
        assert {name: before[name] for name in fields} != fields
        return body(encode(kind(**before | fields)))

    return change


SHARE = client().opening()[-32:]


@pytest.mark.parametrize(
    "fields",
    [
        {"service": "pulse"},
        {"attempt_id": None},
        {"attempt_id": "new"},
        {"sealed": False},
        {"nonce": b"n" * 32},
        {"share": SHARE},
    ],
    ids=lambda fields: "=".join(map(str, [*fields, type(*fields.values()).__name__])),
)
def test_no_field_of_the_opening_can_be_changed_on_the_way(fields: dict[str, object]) -> None:
    there = server()
    with pytest.raises(KeyRefused, match="not the run's key"):
        agree(client(attempt_id="now", sealed=True), there, opening=changed(Opening, **fields))
    assert there.service is None


@pytest.mark.parametrize(
    "fields",
    [{"attempt_id": "new"}, {"sealed": False}, {"nonce": b"n" * 32}, {"share": SHARE}],
    ids=lambda fields: next(iter(fields)),
)
def test_no_field_of_the_challenge_can_be_changed_on_the_way(fields: dict[str, object]) -> None:
    there = server(sealed=True)
    with pytest.raises(KeyRefused, match="not the run's key"):
        agree(client(attempt_id="now"), there, challenge=changed(Challenge, **fields))
    assert there.service is None


def test_the_same_said_in_other_bytes_is_not_what_was_proved() -> None:
    def longer(said: bytes) -> bytes:
        # a text, its length in one byte more
        return said.replace(b"\xaaattempt_id\xa3now", b"\xaaattempt_id\xd9\x03now")

    there = server()
    with pytest.raises(KeyRefused, match="not the run's key"):
        agree(client(attempt_id="now"), there, opening=longer)
    assert there.service is None


def test_one_server_cannot_be_passed_off_as_another() -> None:
    """Somebody on the way leads a connection for server 0 to server 1, or to server 0 of an earlier attempt."""
    one, earlier = (
        ServerSide(KEY, "now", {"server 1"}, sealed=False),
        ServerSide(KEY, "then", {"server 0"}, sealed=False),
    )
    with pytest.raises(KeyRefused, match="no service 'server 0': another one was wanted"):
        agree(client("server 0", "now"), one)
    with pytest.raises(OtherAttempt, match="restart attempt then, this process of restart attempt now"):
        agree(client("server 0", "now"), earlier)
    assert one.service is earlier.service is None
    for there in (one, earlier):  # or says what that one would like to hear
        fresh = ServerSide(KEY, *(("now", {"server 1"}) if there is one else ("then", {"server 0"})), sealed=False)
        pretended = changed(Opening, service="server 1") if there is one else changed(Opening, attempt_id="then")
        with pytest.raises(KeyRefused):
            agree(client("server 0", "now"), fresh, opening=pretended)
        assert fresh.service is None


def test_a_recorded_conversation_convinces_no_second_server() -> None:
    here, first, second = client(), server(), server()
    challenge, _ = first.receive(body(here.opening()))
    answer = here.answer(body(challenge))
    assert first.receive(body(answer))[1] == ""
    second.receive(body(here.opening()))
    frame, refusal = second.receive(body(answer))
    assert refusal == "wrong proof of the key"
    assert decode(body(frame)) == {"refused": "key", "proof": b""}
    assert second.service is None


def test_the_proof_of_one_role_is_not_that_of_the_other() -> None:
    here = client()
    answer = here.answer(body(encode(Challenge("now", False, b"n" * 32, b"s" * 32))))
    with pytest.raises(KeyRefused):
        here.judge(body(encode(ServerVerdict("", decode(body(answer))["proof"]))))


def test_a_yes_cannot_be_made_of_a_proven_no() -> None:
    with pytest.raises(KeyRefused, match="does not prove"):
        agree(client("page"), server(), verdict=changed(ServerVerdict, refused=""))


@given(st.binary(max_size=20), st.binary(max_size=20), st.integers(0, 20))
def test_bytes_of_the_opening_cannot_be_passed_off_as_bytes_of_the_challenge(one: bytes, two: bytes, at: int) -> None:
    both = one + two
    assert (both[:at] == one) == (Transcript(both[:at], both[at:]).digest() == Transcript(one, two).digest())


def test_either_side_can_have_all_encrypted() -> None:
    for wishes in ((True, False), (False, True), (True, True), (False, False)):
        here, there = client(sealed=wishes[0]), server(sealed=wishes[1])
        agree(here, there)
        assert here.sealed is there.sealed is any(wishes)


def test_both_sides_have_the_same_keys_one_for_each_direction_and_others_on_each_connection() -> None:
    found = set()
    for _ in range(2):
        here, there = client(), server()
        agree(here, there)
        assert here.keys() == there.keys()[::-1]
        found |= {*here.keys()}
    assert len(found) == 4
    assert KEY not in found


def test_whoever_has_the_key_and_all_that_travelled_cannot_derive_the_connections_keys() -> None:
    """An observer's attempt to be either side again, with the key, all frames and every share that was seen."""
    here, there, frames = client(), server(), list[bytes]()
    agree(here, there, opening=recorded(frames), challenge=recorded(frames))
    opening, challenge = decode_as(frames[0], Opening), decode_as(frames[1], Challenge)
    secret = handshake._Secret()  # not the one that was forgotten
    transcript = Transcript(*frames)
    derived = {secret.keys(KEY, transcript, share) for share in (opening.share, challenge.share, secret.share)}
    guessed = {transcript.prove(KEY, role) for role in ("client", "server ", "keys", "")}
    assert {*here.keys()}.isdisjoint(
        {key for keys in derived for key in keys} | guessed | {opening.share, challenge.share}
    )


def recorded(frames: list[bytes]) -> Change:
    def record(said: bytes) -> bytes:
        frames.append(said)
        return said

    return record


def test_the_secret_of_a_connection_is_no_function_of_the_key_and_what_travelled(monkeypatch) -> None:
    """Same key, nonces and frames; only the private halves differ: then the keys do."""
    transcript = Transcript(b"opening", b"challenge")
    one, two, other = handshake._Secret(), handshake._Secret(), handshake._Secret()
    assert one.keys(KEY, transcript, two.share) == two.keys(KEY, transcript, one.share)
    assert one.keys(KEY, transcript, two.share) != other.keys(KEY, transcript, two.share)
    assert one.keys(KEY, transcript, two.share) != one.keys(OTHER_KEY, transcript, two.share)
    assert one.keys(KEY, transcript, two.share) != one.keys(KEY, Transcript(b"", b"openingchallenge"), two.share)


@pytest.mark.parametrize("share", [bytes(32), b"\x01" + bytes(31)], ids=["zero", "one"])
def test_a_share_that_would_make_the_secret_known_to_all_is_refused(share: bytes) -> None:
    with pytest.raises(BadFrame, match="half of the secret is none"):
        handshake._Secret().keys(KEY, Transcript(b"", b""), share)


@pytest.mark.parametrize(
    "opening",
    [
        Opening(VERSION - 1, "board", None, False, b"n" * 32, b"s" * 32),
        Opening(VERSION, "board", None, False, b"", b"s" * 32),
        Opening(VERSION, "board", None, False, b"n" * 32, b"s" * 31),
        {"version": 1},
        ClientProof(b"x" * 32),
        [1, 2],
        None,
        {
            "version": 3,
            "service": "board",
            "nonce": b"n" * 32,
            "share": b"s" * 32,
            "attempt_id": None,
            "sealed": 1,
            "more": 1,
        },
    ],
)
def test_an_opening_of_another_shape_is_a_bad_frame(opening: object) -> None:
    with pytest.raises(BadFrame):
        server().receive(body(encode(opening)))


@pytest.mark.parametrize(
    "key",
    [b"abc", bytes(16), bytes(32), b"0123456789abcdef", b"password" * 4, bytes(range(33))],
    ids=["short", "16 zeros", "32 zeros", "16 bytes", "a word", "33 bytes"],
)
def test_what_is_not_32_random_bytes_is_no_key(key: bytes) -> None:
    with pytest.raises(BadInput, match="accepted: 32 random bytes"):
        ClientSide(key, "board", None, sealed=False)


@given(st.randoms(use_true_random=True))
def test_32_random_bytes_are_a_key(random: object) -> None:
    key = random.randbytes(32)  # type: ignore[attr-defined]
    assert checked_key(key) == key


def test_a_service_with_terms_is_proved_by_a_key_of_its_own_which_proves_nothing_else() -> None:
    there = server()
    key = key_of(KEY, "pulse/2 workers")
    assert agree(client("pulse/2 workers", key=key), there) == ("now", "")
    assert (there.service, there.terms) == ("pulse", "2 workers")
    for wanted in ("pulse", "board", "pulse/3 workers", "board/2 workers", "pulse/"):
        with pytest.raises(KeyRefused, match="not the run's key"):
            agree(client(wanted, key=key), server())
    with pytest.raises(KeyRefused, match="not the run's key"):
        agree(client("pulse/2 workers"), server())
    with pytest.raises(KeyRefused, match="no service"):
        agree(client("other/2 workers", key=key_of(KEY, "other/2 workers")), server())
    assert key_of(KEY, "pulse") == KEY
