"""Decisions that one rank makes for all of its group."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from volary.sharding.groups import LEADER, leads

if TYPE_CHECKING:
    from volary.comm.groups.group import Bulletin


def from_leader(bulletin: Bulletin, topic: str, decide: Callable[[], Any]) -> Any:
    """Return the leader's decision, on all ranks: it posts that, of JSON's types, under `topic`. A collective call."""
    if not leads(bulletin.rank):
        return bulletin.read(topic, LEADER)
    decision = decide()
    bulletin.post(topic, decision)
    return json.loads(json.dumps(decision))  # in the types that the others get
