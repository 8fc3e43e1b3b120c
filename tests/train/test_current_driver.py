"""The board that workers meet at stays connected for the group that follows."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from volary.comm.control.board import Board
from volary.comm.control.server import KeyedServer
from volary.run.launch.meeting import Meeting
from volary.train.member.current_driver import CurrentDriver

KEY = secrets.token_bytes(32)
WITHIN_S = 60.0


@pytest.fixture
def met() -> Iterator[Meeting]:
    with KeyedServer(KEY, {"board": Board()}) as server:
        yield Meeting(*server.address, 1, server.attempt_id)


def test_a_board_that_was_kept_open_is_the_next_group_s_and_nobody_else_s(met):
    driver = CurrentDriver(met)
    at, board = driver.board(KEY, WITHIN_S)
    board.set("a", "1")
    driver.keep_board(at, board)
    assert driver.board(KEY, WITHIN_S) == (met, board)
    _, another = driver.board(KEY, WITHIN_S)
    assert another is not board and another.get("a") == b"1"
    board.close()
    another.close()


def test_a_board_that_was_closed_meanwhile_or_is_another_driver_s_is_connected_to_anew(met):
    driver = CurrentDriver(met)
    at, closed = driver.board(KEY, WITHIN_S)
    driver.keep_board(at, closed)
    closed.close()
    at, board = driver.board(KEY, WITHIN_S)
    assert not board.closed
    driver.keep_board(at, board)
    with KeyedServer(KEY, {"board": Board()}) as server:
        driver.meeting = Meeting(*server.address, 2, server.attempt_id)
        at, newer = driver.board(KEY, WITHIN_S)
        assert at.attempt == 2 and board.closed
        newer.close()
