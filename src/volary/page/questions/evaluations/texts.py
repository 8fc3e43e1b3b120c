"""The texts that a network of symbols has written, evaluation by evaluation."""

from __future__ import annotations

from collections import deque
from typing import Any

from volary.run.database.reader import RunReader

MOST = 100  # of the newest texts


def texts(reader: RunReader) -> list[dict[str, Any]]:
    """The newest texts, oldest first: step, prompt and text, whose lines stay lines. None are twice of one step."""
    newest = deque(reader.events(kind="text"), maxlen=MOST)
    by_step = {int(event.data.get("of_step", event.step or 0)): event for event in newest}
    return [
        {"step": step, "prompt": _printed(event.data.get("prompt", "")), "text": _printed(event.data.get("text", ""))}
        for step, event in sorted(by_step.items())
    ]


def _printed(text: object) -> str:
    """Without terminal codes and what else cannot be printed."""
    return "".join(one if one.isprintable() or one == "\n" else "\ufffd" for one in str(text))
