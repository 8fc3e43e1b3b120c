"""Promises of a run with `recover: memory` when a worker or a machine is lost, whatever the launcher does."""

from __future__ import annotations

from faults._running import events, last_step, state
from volary.run.directory import RunDirectory


def assert_trained_on_without(lost: int, directory: RunDirectory, steps: int) -> None:
    """Rank `lost` of two is lost, and the other one has trained on from memory to the last step."""
    assert (state(directory), last_step(directory)) == ("finished", steps)
    assert [event.rank for event in events(directory, "lost")] == [lost]
    recovered = [event.data for event in events(directory, "recovered")]
    assert recovered == [{"workers": 1, "lost": [lost], "source": "memory"}]
