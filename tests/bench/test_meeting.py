"""Ranks of a measurement meet, and part."""

from __future__ import annotations

import sys

import pytest

from volary.bench import local

PARTS = """
import os, time
from volary.bench.meeting import met
from volary.comm.control.store import KeyedStore
from volary.placement import find

def late(self, keys):
    until = time.monotonic() + 2
    while not os.path.exists("left") and time.monotonic() < until:
        time.sleep(0.01)
    return answer(self, keys)

place = find()
with met(place, 60):
    if place.rank:
        answer, KeyedStore.multi_get = KeyedStore.multi_get, late
if place.rank == 0:
    open("left", "w").close()
"""


@pytest.mark.slow  # three Pythons
def test_the_board_is_kept_until_the_slowest_rank_has_had_its_last_answer():
    assert local.run([sys.executable, "-c", PARTS], 3, timeout_s=120) == 0
