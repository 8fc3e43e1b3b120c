"""A run that may have more or fewer workers begins with as many as have room."""

from __future__ import annotations

import pytest

from volary.driver.tasks import checks
from volary.driver.tasks.checks import with_room
from volary.errors import BadInput
from volary.session import Session


@pytest.fixture
def cores(monkeypatch):
    def usable(count: int) -> None:
        monkeypatch.setattr(checks, "cores_here", lambda: list(range(count)))

    return usable


def session(workers: int | str, engine: str = "local") -> Session:
    settings = {"workers": workers, "recover": "memory"}
    data = {"source": "digits", "batch_size": 64}
    return Session(network="lenet", data=data, train={"steps": 9}, strategy=settings, engine=engine)


@pytest.mark.parametrize(("usable", "begun"), [(2, 2), (3, 3), (64, 8)])
def test_as_many_begin_here_as_cores_are_usable_up_to_the_most(cores, usable, begun):
    cores(usable)
    found = with_room(session("2..8"))
    assert (found.strategy.workers, str(found.strategy.between)) == (begun, "2..8")


def test_elsewhere_the_most_begin_and_a_number_stays_as_it_is(cores):
    cores(1)
    assert with_room(session("2..8", "mpi")).strategy.workers == 8
    assert with_room(session(4)) == session(4)


def test_a_range_above_the_machine_is_refused(cores):
    cores(2)
    with pytest.raises(BadInput, match=r"strategy.workers is 4..8, and 2 cores are usable here; accepted: a range"):
        with_room(session("4..8"))
