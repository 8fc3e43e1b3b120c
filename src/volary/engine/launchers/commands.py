"""Runs a scheduler's own commands, and reads their answers."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

ANSWER_S = 30.0  # of a controller that is busy


def answer_of(command: Sequence[str], at_most_s: float = ANSWER_S) -> subprocess.CompletedProcess[str]:
    """Run a command; return what it printed and its status: the reason and 1 if it cannot be run or does not end."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=at_most_s, check=False)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no answer within {at_most_s:g} s")
    except (OSError, subprocess.SubprocessError) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def last_line(answer: subprocess.CompletedProcess[str]) -> str:
    """The last of what it said, without its own name before it."""
    lines = [line for line in f"{answer.stdout}\n{answer.stderr}".splitlines() if line.strip()]
    if not lines:
        return f"status {answer.returncode}"
    return lines[-1].removeprefix(f"{answer.args[0]}: ").removeprefix("error: ")


def refusal(command: Sequence[str]) -> str | None:
    """The last line of a command that fails; None if it ends well."""
    answer = answer_of(command)
    return last_line(answer) if answer.returncode else None
