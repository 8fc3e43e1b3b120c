"""Who is in a run while it trains: each worker, since when, at which step, how fast, and how it is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from volary.monitor.wording import clean
from volary.run.database.journal import StepRow
from volary.run.database.reader import Event

State = Literal["starts", "joins", "trains", "leaves", "suspect", "spare", "lost", "left"]
GONE = ("lost", "left")
GONE_KEPT = 10  # of those that are gone: the newest


@dataclass(frozen=True)
class ListedWorker:
    """A worker of the newest attempt. host: empty if it is not known.

    since, until: when it came, and went, in seconds since 1970. step: the newest that it has done, if any.
    samples_per_s: of its newest steps, its waits for others among them; None if it does not train.
    """

    rank: int
    host: str
    since: float
    state: State
    until: float | None = None
    step: int | None = None
    samples_per_s: float | None = None


def roster(
    info: Mapping[str, str], events: Iterable[Event], recent: Iterable[StepRow], *, starting: bool
) -> list[ListedWorker]:
    """List who is here by rank, then who is gone, the newest first.

    info: the run's facts. events: of the attempt that runs. recent: the newest steps of each worker. starting: whether
    the attempt has not begun to train.
    """
    by_rank: dict[int, list[StepRow]] = {}
    for row in recent:
        by_rank.setdefault(row.rank, []).append(row)
    found = [_measured(one, by_rank.get(one.rank, ()), starting) for one in _from_events(info, events).values()]
    here = [one for one in found if one.state not in GONE]
    if all(one.state in ("leaves", "spare", "joins") for one in here):  # somebody has to train: they stay
        here = [replace(one, state="trains") if one.state == "leaves" else one for one in here]
    gone = sorted((one for one in found if one.state in GONE), key=lambda one: one.until or 0.0, reverse=True)
    return [*sorted(here, key=lambda one: one.rank), *gone[:GONE_KEPT]]


def hosts(info: Mapping[str, str]) -> dict[str, str]:
    """The host of each worker by rank, as the run noted them last."""
    try:
        return {str(rank): clean(host) for rank, host in json.loads(info.get("hosts", "{}")).items()}
    except (ValueError, AttributeError):
        return {}


def _from_events(info: Mapping[str, str], events: Iterable[Event]) -> dict[int, ListedWorker]:
    on, found = hosts(info), dict[int, ListedWorker]()
    for event in events:
        host = clean(event.data.get("host", on.get(str(event.rank), "")))
        match event:
            case Event(kind="started"):
                workers = range(int(event.data.get("workers", info.get("workers", 0))))
                found = {rank: ListedWorker(rank, on.get(str(rank), ""), event.at, "trains") for rank in workers}
            case Event(kind="joined", rank=int(rank)):
                found[rank] = ListedWorker(rank, host, event.at, "joins")
            case Event(kind="spare", rank=int(rank)) if rank not in found:
                found[rank] = ListedWorker(rank, host, event.at, "spare")
            case Event(kind="recovered"):
                for rank in (*event.data.get("joined", ()), *event.data.get("spares", ())):
                    if rank in found:
                        found[rank] = replace(found[rank], state="trains")
            case Event(kind="asked", rank=int(rank)) if rank in found:  # all else is asked of the run
                found[rank] = replace(found[rank], state="leaves")
            case Event(kind="suspect", rank=int(rank)) if rank in found:
                found[rank] = replace(found[rank], state="suspect", step=event.step)
            case Event(kind="left" | "lost" as kind, rank=int(rank)) if rank in found:
                state: State = "left" if kind == "left" else "lost"
                was = found[rank]
                found[rank] = replace(was, state=state, until=event.at, step=event.step, host=was.host or host)
    return found


def _measured(member: ListedWorker, rows: Sequence[StepRow], starting: bool) -> ListedWorker:
    """The member with what its newest steps say of it."""
    newest = max((row.step for row in rows), default=None)
    state = member.state
    if state == "joins" and any(row.ended_at >= member.since for row in rows):  # not of an earlier attempt's rank
        state = "trains"
    if state == "suspect" and newest is not None and newest > (member.step or 0):
        state = "trains"
    if state == "trains" and starting:
        state = "starts"
    if state in (*GONE, "joins", "spare", "starts"):
        return replace(member, state=state)
    seconds = sum(row.step_s for row in rows)
    speed = sum(row.samples for row in rows) / seconds if seconds > 0 else None
    return replace(member, state=state, step=newest or member.step, samples_per_s=speed)
