"""How many cores a process has, as whoever started several on the same ones says."""

from __future__ import annotations

from volary.run.machine.cores import EACH, cores_each, cores_here, own_cores


def test_a_process_has_all_cores_that_it_may_use_or_what_it_was_told(monkeypatch):
    monkeypatch.delenv(EACH, raising=False)
    assert own_cores() == len(cores_here())
    for cores, processes, each in (([0, 1], 4, 0.5), ([0, 1, 2], 2, 1.5), ([3], 1, 1.0)):
        for name, value in cores_each(cores, processes).items():
            monkeypatch.setenv(name, value)
        assert own_cores() == each
