"""Reads the stacks that a worker reports: the user's own line in them."""

from __future__ import annotations

import re

from volary.errors.raised import owner, shown

_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+), in (?P<name>.+)$', re.MULTILINE)


def place(stack: str) -> str:
    """The innermost line of the user's own code in the training thread, which is told last; empty if there is none."""
    frames = list(_FRAME.finditer(stack[stack.rfind("\nThread ") + 1 :]))
    own = [frame for frame in frames if owner(frame["file"]) == ""]
    return f"{shown(own[-1]['file'])}:{own[-1]['line']} in {own[-1]['name']}" if own else ""
