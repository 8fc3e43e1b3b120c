"""Runs as one file that opens from disk: the page with its data inside, and Markdown."""

from __future__ import annotations

import base64
import hashlib
import html
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from volary.errors import BadInput
from volary.page.overview.compare import MOST, side_by_side
from volary.page.overview.table import row
from volary.page.questions import charts
from volary.page.questions.facts import facts
from volary.page.questions.histograms import histograms
from volary.page.questions.logs import logs
from volary.page.questions.network import network
from volary.page.questions.session_text import session_text
from volary.page.questions.staleness import staleness
from volary.page.questions.timeline import timeline
from volary.page.questions.usage import usage
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory

STATIC = Path(__file__).parents[1] / "static"
COLUMNS = 1200  # of a chart: nothing is read again later
RANK_COLUMNS = 160
RANKS = 64  # as many workers' time by phase is brought along
METRICS = 200  # as many of a run's are brought along


def report_page(runs: Sequence[RunDirectory]) -> bytes:
    """One HTML file of all `runs`, which needs no network and no server. Raises RunError, and BadInput for too many."""
    if len(runs) > MOST:
        raise BadInput(f"{len(runs)} runs; accepted: up to {MOST}")
    names = _names(runs)
    answers = {"runs|||": {"folder": "", "runs": [row(*one) for one in zip(names, runs, strict=True)], "unread": 0}}
    for name, directory in zip(names, runs, strict=True):
        answers |= {f"{question}|{name}|{of}|": answer for (question, of), answer in _answers(directory).items()}
    start = f"#/run/{names[0]}"
    if len(runs) > 1:
        answers[f"compare|{','.join(names)}||"] = side_by_side(names, runs)
        start = f"#/compare/{','.join(names)}"
    data = msgspec.json.encode({"start": start, "made_at": time.time(), "answers": answers})
    return _file(", ".join(names), data)


def _names(runs: Sequence[RunDirectory]) -> list[str]:
    """Their names, and where two have the same, with what lies above."""
    alone = [run.name for run in runs]
    return [
        name if alone.count(name) == 1 else f"{run.path.parent.name}-{name}"
        for name, run in zip(alone, runs, strict=True)
    ]


def _answers(directory: RunDirectory) -> dict[tuple[str, str], Any]:
    known = facts(directory)
    names, ranks = known["metric_names"][:METRICS], known["ranks"][:RANKS]
    with RunReader(directory) as reader:
        of_step = timeline(reader, None)
        metrics = {("metric", name): charts.metric(reader, name, 1, None, COLUMNS) for name in names}
        phases = {("phases", str(rank)): charts.phases(reader, rank, 1, None, RANK_COLUMNS) for rank in ranks}
        return {
            ("facts", ""): known | {"metric_names": names, "ranks": ranks},
            ("steps", ""): charts.steps(reader, 1, None, COLUMNS),
            ("ranks", ""): charts.ranks(reader, 1, None, RANK_COLUMNS),
            ("timeline", ""): of_step | {"steps": [of_step["step"]]},
            ("histograms", ""): histograms(reader, ""),
            ("network", ""): network(reader),
            ("staleness", ""): staleness(reader),
            ("usage", ""): usage(reader, RANK_COLUMNS),
            ("logs", ""): logs(directory),
            ("session", ""): session_text(directory),
            **metrics,
            **phases,
        }


def _file(title: str, data: bytes) -> bytes:
    script = (STATIC / "page.js").read_bytes().replace(b"</", b"<\\/")
    style = (STATIC / "page.css").read_bytes()
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{html.escape(title)}</title>\n<style>"
    )
    # what could end the element is written another way, which JSON reads as the same
    inside = data.replace(b"<", b"\\u003c")
    return b"".join(
        (
            head.encode(),
            style,
            b'</style>\n</head>\n<body>\n<div id="page"></div>\n<script type="application/json" id="volary-report">',
            inside,
            b"</script>\n<script>",
            script,
            b"</script>\n</body>\n</html>\n",
        )
    )


def _digest(text: bytes) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}"
