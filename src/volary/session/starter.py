"""The commented session file that `volary init` writes."""

from __future__ import annotations

from pathlib import Path


def starter() -> str:
    """A session that runs at once on any machine: LeNet on the built-in digits with two workers."""
    return Path(__file__).with_name("starter.yaml").read_text(encoding="utf-8")
