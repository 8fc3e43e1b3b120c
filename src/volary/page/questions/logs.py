"""The logs of all workers and servers as one: a line that several wrote is there once, and whose it is."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from volary.run.database.reader import RunReader, attempt_in
from volary.run.directory import RunDirectory
from volary.run.verdict import Verdict, read_verdict

TAIL_BYTES = 256 * 1024  # of each log: a log of any length is shown at once
LINES = 2000  # the newest that hold the words
_TRACEBACK = "Traceback (most recent call last)"
_NUMBER = re.compile(r"(\D*)(\d*)")


@dataclass
class _Line:
    at: int
    text: str
    who: list[str] = field(default_factory=list)


def logs(directory: RunDirectory, words: str = "") -> dict[str, Any]:
    """The lines that hold `words`, whatever their case. first_error: of the worker that failed first.

    Logs have no times: lines are in the order in which each log has them.
    """
    tails = {path.stem: _tail(path) for path in sorted(directory.logs.glob("*.log"), key=_order)}
    folded: dict[tuple[str, int], _Line] = {}
    for name, (text, _) in tails.items():
        times: dict[str, int] = {}
        for at, line in enumerate(text.splitlines()):
            if line.strip() and words.lower() in line.lower():
                times[line] = times.get(line, 0) + 1
                folded.setdefault((line, times[line]), _Line(at, line)).who.append(name)
    lines = sorted(folded.values(), key=lambda line: line.at)
    return {
        "files": [
            {"name": name, "size_bytes": size, "from_start": size <= TAIL_BYTES} for name, (_, size) in tails.items()
        ],
        "found": len(lines),
        "lines": [{"who": line.who, "text": _printable(line.text)} for line in lines[-LINES:]],
        "first_error": _first_error(directory, {name: text for name, (text, _) in tails.items()}),
    }


def _first_error(directory: RunDirectory, texts: dict[str, str]) -> dict[str, Any] | None:
    failed = _failed_first(directory)
    if failed is None:
        return None
    name = f"worker-{failed.rank}"
    _, found, rest = texts.get(name, "").rpartition(_TRACEBACK)
    lines = f"{found}{rest}".splitlines() if found else []
    return {
        "who": name,
        "host": failed.host,
        "step": failed.step,
        "phase": failed.phase,
        "reason": _printable(failed.reason),
        "lines": [_printable(line) for line in lines[:200]],
    }


def _failed_first(directory: RunDirectory) -> Verdict | None:
    """The worker whose own code raised first, as their accounts were written."""
    with RunReader(directory) as reader:
        attempt = attempt_in(reader.info(), before=0)
    found = []
    for path in directory.verdicts.glob("rank-*.json"):
        verdict = read_verdict(directory.verdicts, int(path.stem.removeprefix("rank-")), attempt)
        if verdict is not None and verdict.outcome == "failed":
            found.append((path.stat().st_mtime_ns, verdict.rank, verdict))
    return min(found)[2] if found else None


def _tail(path: Path) -> tuple[str, int]:
    """The end of a log, in whole lines, and the size of all of it."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            data = file.read(TAIL_BYTES)
    except OSError:
        return "", 0
    return (data if size <= TAIL_BYTES else data.partition(b"\n")[2]).decode(errors="replace"), size


def _order(path: Path) -> list[tuple[str, int]]:
    return [(word, int(number or 0)) for word, number in _NUMBER.findall(path.stem)]


def _printable(line: str) -> str:
    return "".join(char if char.isprintable() or char == "\t" else "\N{REPLACEMENT CHARACTER}" for char in line)
