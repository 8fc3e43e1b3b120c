"""The command `volary`: one short file per verb, which parses, calls and prints. Guide: docs/command-line.md

Nothing heavy is imported before a verb needs it: the list of verbs is this folder, and a verb's line in it is the first
line of its file.
"""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command with the arguments of this process, and exit with its status."""
    from volary.cli._main import run

    sys.exit(run(sys.argv[1:]))
