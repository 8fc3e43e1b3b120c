"""Problems of a run, in sentences: the gravest first, then the newest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from volary.monitor.account import Account
from volary.monitor.wording import TROUBLE, trouble
from volary.run.database.reader import Event

SHOWN = 20
COMMUNICATION_WORTH_SAYING = 0.3  # of a step
NOTABLE = 0.1  # of a step


@dataclass(frozen=True)
class Wrong:
    """A sentence. grave: the run has ended because of it. at: since when, in seconds since 1970, if that is known."""

    text: str
    grave: bool = False
    at: float | None = None


def wrong(found: Account, events: Iterable[Event]) -> list[Wrong]:
    """List all problems. events: of the attempt that the run is in."""
    return [*_ended(found), *_warning(events), *_seen(found)]


def notable(found: Account, slow: Sequence[Mapping[str, Any]]) -> list[str]:
    """List what is worth a look although nothing is wrong. slow: workers, as `communication.stragglers` has them."""
    sentences = []
    if slow:
        times = "once a worker" if len(slow) == 1 else f"{len(slow)} times a worker"
        longest = max((one.get("share") or 0.0 for one in slow), default=0.0)
        waited = f", the others waited for up to {longest:.0%} of a step" if longest else ""
        sentences.append(f"{times} held the others up{waited} (see Stragglers)")
    window = found.digest.window
    if window and found.digest.workers > 1 and window.shares["exchange"] >= NOTABLE:
        sentences.append(f"communication blocks compute for {window.shares['exchange']:.0%} of a step")
    return sentences


def _ended(found: Account) -> Iterator[Wrong]:
    digest = found.digest
    if digest.state == "failed":
        yield Wrong(digest.message or "the run has failed", grave=True)
    if digest.state == "lost":
        yield Wrong("the run says that it is running, and its driver is gone", grave=True)
    if digest.state == "unreadable":
        yield Wrong("its database cannot be read", grave=True)


def _warning(events: Iterable[Event]) -> list[Wrong]:
    """The warnings of workers and driver; of a slow worker the newest, until it is slow no more."""
    problems: dict[tuple[str, str], Wrong] = {}
    for event in events:
        if event.kind in ("slow", "not_slow"):
            problems = {key: one for key, one in problems.items() if key[0] != "slow"}
        if event.kind in TROUBLE:
            key = (event.kind, trouble(event))
            problems.pop(key, None)  # several ranks may tell of the same thing: the newest stays
            problems[key] = Wrong(trouble(event), at=event.at)
    return list(reversed(problems.values()))[:SHOWN]


def _seen(found: Account) -> Iterator[Wrong]:
    window = found.digest.window
    if window and found.digest.workers > 1 and window.shares["exchange"] > COMMUNICATION_WORTH_SAYING:
        yield Wrong(f"communication blocks compute for {window.shares['exchange']:.0%} of a step")
    for kept in found.checkpoints:
        if kept.condition.startswith("damaged"):
            yield Wrong(f"checkpoint of step {kept.step}: {kept.condition}")
