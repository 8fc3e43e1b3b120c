"""Who has a place in a run, and at whose hands."""

from __future__ import annotations

from pathlib import Path

import pytest

from comm.conftest import Echo
from volary.comm.control.errors import ConnectionLost, OtherAttempt
from volary.comm.control.server import KeyedServer
from volary.placement import Place
from volary.run.directory import RunDirectory
from volary.run.launch.meeting import Meeting
from volary.train.member.process import Membership, _outcome_of


def test_a_worker_that_is_led_to_the_server_of_an_earlier_life_is_no_member_of_it() -> None:
    directory, echo = RunDirectory.create(Path("runs"), "it", "it", "network: lenet\n"), Echo()
    place = Place(launcher="local", rank=0, world_size=1, local_rank=0, node=0, attempt=1, meet="127.0.0.1:1")
    with (
        KeyedServer(directory.key(), {"pulse": echo}, attempt_id="then") as earlier,
        pytest.raises(OtherAttempt, match="of restart attempt then, this process of restart attempt now"),
    ):
        Membership.claim(place, directory, Meeting(*earlier.address, 1, "now"))
    assert echo.said == []


def test_a_worker_whose_run_s_server_left_while_it_asked_it_is_no_cause_of_the_end() -> None:
    assert _outcome_of(ConnectionLost("10.0.0.1:7 closed the connection")) == "peer_lost"
