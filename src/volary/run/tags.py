"""Tags and a note that people give to a run, in a file that its driver never writes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from volary.errors import BadInput, RunError
from volary.run.directory import RunDirectory
from volary.run.disk import Disk, open_regular, replace_file

FILE = "tags.json"
LONGEST_NOTE = 10_000
MOST_TAGS = 100
_TAG = re.compile(r"[\w.:/+=-]{1,50}")


@dataclass(frozen=True)
class Tags:
    """The tags, each once, in the order in which they were given, and the note. Raises BadInput for what is neither."""

    tags: tuple[str, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        for tag in self.tags:
            if not _TAG.fullmatch(tag):
                raise BadInput(f"the tag {tag!r}: accepted: 1 to 50 letters, digits and any of _ . : / + = -")
        if len(self.tags) > MOST_TAGS:
            raise BadInput(f"{len(self.tags)} tags; accepted: up to {MOST_TAGS}")
        if len(self.note) > LONGEST_NOTE:
            raise BadInput(f"the note has {len(self.note):,} characters; accepted: up to {LONGEST_NOTE:,}")

    def changed(self, add: Sequence[str] = (), remove: Sequence[str] = (), note: str | None = None) -> Tags:
        """Return tags with some added and removed, and another note, if given. Raises BadInput if one is not there."""
        if missing := [tag for tag in remove if tag not in self.tags]:
            raise BadInput(f"no tag {missing[0]!r}; there are: {', '.join(self.tags) or '(none)'}")
        tags = [tag for tag in dict.fromkeys([*self.tags, *add]) if tag not in remove]
        return Tags(tuple(tags), self.note if note is None else note)


def read_tags(directory: RunDirectory) -> Tags:
    """Read the tags of the run; none if they cannot be read."""
    try:
        with open_regular(directory.path / FILE) as file:
            return msgspec.json.decode(file.read(), type=Tags)
    except (OSError, ValueError, BadInput, msgspec.MsgspecError):
        return Tags()


def write_tags(directory: RunDirectory, tags: Tags) -> None:
    """Replace what is said of the run, also while it runs. Raises RunError if that cannot be written."""
    try:
        replace_file(Disk(), directory.path / FILE, msgspec.json.encode(tags))
    except OSError as error:
        raise RunError(f"{directory.path / FILE}: cannot be written: {error.strerror}") from None
