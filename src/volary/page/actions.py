"""What the page may change, each by a POST. A driver hears of it from its run's folder, and notes it as an event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from volary.errors import BadInput
from volary.run.directory import RunDirectory
from volary.run.removing import remove
from volary.run.stopping import ask_to_stop
from volary.run.tags import Tags, write_tags

LARGEST_BYTES = 64 * 1024


def _tagged(directory: RunDirectory, body: bytes) -> None:
    try:
        write_tags(directory, msgspec.json.decode(body, type=Tags))
    except msgspec.MsgspecError as error:
        raise BadInput(f"tags and note: {error}") from None


ACTIONS: dict[str, Callable[[RunDirectory, bytes], Any]] = {
    "stop": lambda directory, _: ask_to_stop(directory),
    "tags": _tagged,
    "remove": lambda directory, _: remove(directory),
}
"""By name: end the run after its step, replace its tags and its note, remove it. Each raises BadInput if it may not."""
