"""Which GPUs there are and who computes on them: asked of a library that answers as NVIDIA's does."""

from __future__ import annotations

from pathlib import Path

import pytest

from _nvml import nvml
from volary.run.machine import gpus


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "LIBRARY", str(nvml(Path("nvml.so").absolute())))
    monkeypatch.delenv(gpus.VISIBLE, raising=False)


def test_gpus_that_somebody_computes_on_are_known_by_their_numbers(three, monkeypatch):
    assert gpus.gpus_here() == {0: False, 1: True, 2: False}
    monkeypatch.setenv(gpus.VISIBLE, "1,2")
    assert gpus.gpus_here() == {1: True, 2: False}


def test_a_library_that_is_none_of_nvidia_s_is_as_good_as_none(monkeypatch):
    monkeypatch.setattr(gpus, "LIBRARY", "libc.so.6")
    monkeypatch.setattr(gpus, "_devices", lambda: [0])
    monkeypatch.delenv(gpus.VISIBLE, raising=False)
    assert gpus.gpus_here() == {0: False}
