"""The message of a driver to processes that it starts, in their environment: only their user can read it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from volary.errors import BadInput
from volary.run.launch.meeting import Meeting, is_seen
from volary.run.launch.way import Way

KEY = "VOLARY_KEY"
MEET = "VOLARY_MEET"
FOLDER = "VOLARY_FOLDER"
WAY = "VOLARY_WAY"
SCRATCH = "VOLARY_SCRATCH"  # where processes make what stands for a directory that they do not see; removed after them


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """Says which run a process takes part in.

    directory: the run's, on the driver's machine. meeting: where its server is. job: of a worker, as "module:function"
    (train/member/process.py). key: the run's, for processes that may not see the directory; None: they do. folder: the
    driver's working directory, for processes that may have another one. interface: `strategy.interface`. way: to the
    run, for processes that reach none of its addresses.
    """

    directory: Path
    meeting: Meeting
    job: str = ""
    key: bytes | None = field(default=None, repr=False)
    folder: Path | None = None
    interface: str = ""
    way: Way | None = field(default=None, repr=False)

    def variables(self) -> dict[str, str]:
        """The variables for the environment of the processes."""
        found = {
            "VOLARY_RUN": str(self.directory),
            MEET: self.meeting.address,
            "VOLARY_LIFE": str(self.meeting.attempt),
            "VOLARY_SERVER_LIFE": self.meeting.attempt_id,
            "VOLARY_JOB": self.job,
        }
        found |= {"VOLARY_INTERFACE": self.interface} if self.interface else {}
        found |= {} if self.key is None else {KEY: self.key.hex()}
        found |= {} if self.way is None else {WAY: str(self.way)}
        return found | ({} if self.folder is None else {FOLDER: str(self.folder)})

    @property
    def is_seen(self) -> bool:
        """Whether this machine sees the very directory, with its checkpoints, and paths mean the same here."""
        from volary.run.directory import RunDirectory  # engines import this, and with them who only reads a session

        return is_seen(RunDirectory(self.directory), self.meeting.attempt_id) and self.folder in (None, Path.cwd())

    def moved(self, session: str) -> str:
        """The text of the run's session, whose paths below the driver's working directory are below this process's."""
        here = str(Path.cwd())
        if self.folder is None or str(self.folder) in ("/", here):
            return session
        return re.sub(re.escape(str(self.folder)) + r"(?=[/\"'\n])", lambda _: here, session)

    @classmethod
    def found(cls, environment: Mapping[str, str]) -> Assignment | None:
        """The one that a driver gave to this process; None if no driver did. Raises BadInput if a part is missing."""
        if "VOLARY_RUN" not in environment:
            return None
        try:
            host, _, port = environment[MEET].rpartition(":")
            attempt, attempt_id = int(environment["VOLARY_LIFE"]), environment["VOLARY_SERVER_LIFE"]
            return cls(
                directory=Path(environment["VOLARY_RUN"]),
                meeting=Meeting(host, int(port), attempt, attempt_id),
                job=environment["VOLARY_JOB"],
                key=bytes.fromhex(environment[KEY]) if KEY in environment else None,
                folder=Path(environment[FOLDER]) if FOLDER in environment else None,
                interface=environment.get("VOLARY_INTERFACE", ""),
                way=Way.parse(environment[WAY]) if WAY in environment else None,
            )
        except KeyError as missing:
            raise BadInput(f"volary started this process, but its variable {missing.args[0]} is missing") from None
        except ValueError as error:
            raise BadInput(f"volary started this process, but not with whole numbers: {error}") from None
