"""Runs as Markdown: what to paste into a ticket or a paper's notes."""

from __future__ import annotations

from collections.abc import Sequence

from volary.monitor.account import Account, account
from volary.monitor.tables.comparison import compared, table
from volary.monitor.wording import PHASE_WORDS, clean, duration, measured, moment, number, size, whole
from volary.page.questions.problems import wrong
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory

EVALUATIONS = 20


def report_markdown(runs: Sequence[RunDirectory]) -> str:
    """A section for each run, and first, of several, a table of what differs. Raises RunError."""
    parts = []
    if len(runs) > 1:
        rows = [("", *(run.name for run in runs)), *table([compared(run) for run in runs])]
        parts.append("# Runs compared\n\n" + _table(rows))
    parts += [_section(run) for run in runs]
    return "\n".join(parts)


def _section(directory: RunDirectory) -> str:
    found = account(directory)
    with RunReader(directory) as reader:
        events = list(reader.events())
    attempt = max((event.attempt for event in events), default=0)
    lines = [f"# {_escaped(directory.name)}", "", found.digest.session.sentence(), "", _table(_head(found))]
    if problems := wrong(found, (event for event in events if event.attempt == attempt)):
        lines += ["## What is wrong", "", *(f"- {_escaped(one.text)}" for one in problems), ""]
    if found.metrics:
        metrics = sorted({name for _, values in found.metrics for name in whole(values)})
        newest = found.metrics[-EVALUATIONS:]
        rows = [("step", *metrics), *((str(at), *(number(v.get(m)) for m in metrics)) for at, v in newest)]
        lines += ["## Evaluations", "", _table(rows)]
    if found.workers:
        phases = list(found.workers[0].phases_s)
        head = ("worker", "step, ms", *(f"{PHASE_WORDS[phase]}, ms" for phase in phases), "sent")
        rows = [
            (f"rank {one.rank}", _ms(one.step_s), *(_ms(one.phases_s[p]) for p in phases), size(one.sent_bytes))
            for one in found.workers
        ]
        lines += ["## A step, by worker", "", _table([head, *rows])]
    return "\n".join(lines)


def _head(found: Account) -> list[tuple[str, str]]:
    digest = found.digest
    of = f" of {digest.steps_planned}" if digest.steps_planned else ""
    rows = [("", ""), ("state", digest.state), ("steps", f"{digest.step}{of}")]
    if digest.best:
        rows.append(("best", f"{measured(digest.best.values)} at step {digest.best.step}"))
    if digest.window:
        rows.append(("training loss", number(digest.window.loss)))
        rows.append(("samples/s", number(digest.window.samples_per_s)))
        rows.append(("time blocked by communication", f"{digest.window.shares['exchange']:.0%}"))
    if digest.elapsed_s is not None:
        rows.append(("time", duration(digest.elapsed_s)))
    if found.started_at:
        rows.append(("started", moment(found.started_at)))
    return rows


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *others = (f"| {' | '.join(map(_escaped, row))} |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *others, ""])


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g}"


def _escaped(text: str) -> str:
    """Escape text as one line of Markdown: what a run says of itself is text, and nothing else."""
    return "".join(f"\\{char}" if char in "\\`*_[]<>|#" else char for char in clean(text))
