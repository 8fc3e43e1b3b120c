"""The first seed that fails is told, and how to play it again."""

import pytest

from simulation._seeds import SEED, every


def three_is_wrong(seed):
    if seed == 3:
        raise ValueError("it is three")


def test_a_seed_that_fails_is_told_with_the_command_that_plays_it_again():
    command = f"{SEED}=3 .venv/bin/pytest 'tests/simulation/test_seeds.py::test_a_seed_that_fails_is_told"
    with pytest.raises(pytest.fail.Exception, match=r"seed 3: ValueError: it is three") as failed:
        every(range(9), three_is_wrong)
    assert command in str(failed.value)


def test_the_seed_of_the_environment_alone_is_played(monkeypatch):
    monkeypatch.setenv(SEED, "3")
    with pytest.raises(ValueError, match="it is three"):
        every(range(2), three_is_wrong)
