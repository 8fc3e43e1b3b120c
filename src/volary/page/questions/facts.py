"""The facts of one run beside its charts: state, progress, problems, and all that a closer look shows."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from volary.monitor.account import account
from volary.monitor.ended.advice import advice_on
from volary.monitor.outline import settings_in
from volary.monitor.tables.roster import hosts
from volary.monitor.terminal.plain import happened
from volary.monitor.wording import starting_in, whole
from volary.page.questions.communication import IN_MEMORY, choices, exact_bytes, in_memory, stragglers
from volary.page.questions.evaluations.confusion import FIRST as CONFUSION
from volary.page.questions.problems import notable, wrong
from volary.run.control.requests import FIXED
from volary.run.database.reader import RunReader, attempt_in
from volary.run.directory import RunDirectory


def facts(directory: RunDirectory) -> dict[str, Any]:
    """All facts in plain values. Raises RunError if the run cannot be read."""
    found = account(directory, courses=False)
    digest = found.digest
    with RunReader(directory) as reader:
        info, names, recorded = reader.info(), reader.metric_names(), reader.recorded_steps()
        events, ranks = list(reader.events()), reader.ranks()
    attempt = attempt_in(info, before=0)
    window, settings, slow = digest.window, _settings(directory), stragglers(events)
    return {
        **found.as_dict(),
        "read_at": time.time(),
        "sentence": digest.session.sentence(),
        "own_loop": bool(digest.session.own_loop),
        "lr": settings.get("optimizer.lr", ""),
        "choices": choices(events),
        "exact_bytes_per_step": exact_bytes(info, settings),
        "stragglers": slow,
        "notable": notable(found, slow),
        "may_join": digest.state == "running" and directory.meeting.is_file(),
        "fixed": "" if directory.meeting.is_file() else FIXED,
        "starting": starting_in(digest.starting, digest.attempt_s),
        "stopping": digest.stopping and digest.state == "running",
        "advice": advice_on(digest),
        "left_s": digest.left_s,
        "loss": digest.recorded_loss if digest.session.own_loop else window and window.loss,
        "window": asdict(window) if window else None,
        "computes": str(digest.compute) if digest.compute else "",
        "higher_is_better": info.get("higher_is_better", "True") == "True",
        "route": digest.route or (IN_MEMORY if in_memory(info, settings) else ""),
        "update": info.get("update", ""),
        "hosts": hosts(info),
        "metric_names": whole(names),
        "confusion": CONFUSION in names,
        "writes": any(event.kind == "text" for event in events),
        "ranks": ranks,
        "wrong": [asdict(one) for one in wrong(found, (event for event in events if event.attempt == attempt))],
        "happened": [
            {"at": event.at, "attempt": event.attempt, "text": text}
            for event in events
            if (text := happened(event, digest))
        ],
        "recorded_steps": recorded,
    }


def _settings(directory: RunDirectory) -> dict[str, str]:
    """The settings of the session; none if it cannot be read."""
    try:
        return settings_in(directory.session)
    except (OSError, ValueError):
        return {}
