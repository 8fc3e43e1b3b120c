"""Decisions that one rank makes for all of its group."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from volary.sharding.groups import LEADER, leads

if TYPE_CHECKING:
    from volary.comm.groups.group import Bulletin


def from_leader(bulletin: Bulletin, topic: str, decide: Callable[[], Any]) -> Any:
    """Return the leader's decision, on all ranks: it posts that, of JSON's types, under `topic`. A collective call."""
    if leads(bulletin.rank):
        bulletin.post(topic, decide())
    return bulletin.read(topic, LEADER)
