"""Check a session file and print every setting it comes to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from volary.cli import _arguments
from volary.cli._output import remark, say, say_json


@click.command()
@_arguments.session
@_arguments.overrides
@_arguments.as_json
def check(session: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Check the session file SESSION as `volary train` would, without starting it.

    Prints every setting with its value, defaults included. All mistakes are reported at once.
    """
    from volary.session import Session

    found = Session.read(session, overrides)
    found.check()
    summary = _dry_run(found)
    if as_json:
        say_json({"settings": found.settings(), "summary": summary})
        return
    say(found.to_yaml().rstrip())
    # beside the settings, so that these can be redirected into a file
    remark("")
    for name, value in summary.items():
        remark(
            f"{name.replace('_', ' ')}: {value:,}" if isinstance(value, int) else f"{name.replace('_', ' ')}: {value}"
        )


def _dry_run(session: Any) -> dict[str, Any]:
    # torch is imported for a faultless file alone: a misspelt setting is told at once
    from dataclasses import asdict, is_dataclass

    from volary.train import check_session

    summary = check_session(session)
    return asdict(summary) if is_dataclass(summary) and not isinstance(summary, type) else dict(summary)
