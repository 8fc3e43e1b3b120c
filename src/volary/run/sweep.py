"""A sweep is a folder: its session, what is varied, and a run for each combination of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import msgspec

from volary.errors import RunError, SettingError
from volary.run.directory import RunDirectory
from volary.run.disk import Disk, open_regular, replace_file
from volary.session.values.run_name import check_name

FILE = "sweep.json"
_RUNGS = "rungs.json"


class Rung(msgspec.Struct, frozen=True):
    """A length at which the runs of a sweep are compared, and most of them end. at: as `train.stop_at` has it.

    kept: the runs that are resumed from there; None: that is not decided yet.
    """

    at: str
    kept: list[str] | None = None


@dataclass(frozen=True)
class Sweep:
    """The sweep in `folder`. members: by name of a run the settings that it has for itself, as YAML."""

    folder: Path
    members: Mapping[str, Mapping[str, str]]

    @property
    def session(self) -> Path:
        """The file of the settings that all runs have in common."""
        return self.folder / "session.yaml"

    def log(self, member: str) -> Path:
        """The file that says why it could not be queued; a refused run has no more than that."""
        return self.folder / f"{member}.log"

    def run(self, member: str) -> RunDirectory | None:
        """The member's run, once there is one."""
        path = self.folder / member
        return RunDirectory(path) if (path / "run.sqlite").is_file() else None

    def rungs(self) -> list[Rung]:
        """Where its runs are stopped early, in order; none if all are trained to the end. Raises RunError."""
        file = self.folder / _RUNGS
        if not file.exists():
            return []
        try:
            with open_regular(file) as opened:
                return msgspec.json.decode(opened.read(), type=list[Rung])
        except (OSError, msgspec.MsgspecError) as error:
            raise RunError(f"{file} cannot be read: {error}") from None

    def write_rungs(self, rungs: Sequence[Rung]) -> None:
        """Replace them, once it is decided which runs are kept at one."""
        replace_file(Disk(), self.folder / _RUNGS, msgspec.json.encode(rungs))

    def stopped_early(self) -> dict[str, str]:
        """By name of each run that is not resumed beyond a rung, where that is."""
        found, left = dict[str, str](), list(self.members)
        for rung in self.rungs():
            if rung.kept is not None:
                found |= {member: rung.at for member in left if member not in rung.kept}
                left = rung.kept
        return found

    @classmethod
    def create(
        cls,
        folder: Path,
        name: str | None,
        stem: str,
        session_yaml: str,
        members: Mapping[str, Mapping[str, str]],
        rungs: Sequence[Rung] = (),
    ) -> Sweep:
        """A new one in `folder`. name: taken as it is, and refused (RunError) if it exists; None: `stem-sweep-N`."""
        if name is not None:
            check_name("--name", name)
        for one in [name] if name else (f"{stem}-sweep-{number}" for number in count(1)):
            sweep = cls((folder / one).absolute(), members)
            try:
                folder.mkdir(parents=True, exist_ok=True)
                sweep.folder.mkdir()
            except FileExistsError:
                continue
            except OSError as error:
                raise RunError(f"no sweep can be made in {folder}: {error.strerror}") from None
            replace_file(Disk(), sweep.session, session_yaml.encode())
            if rungs:
                sweep.write_rungs(rungs)
            replace_file(Disk(), sweep.folder / FILE, msgspec.json.encode(members))  # last: now it is one
            return sweep
        there = folder / str(name)
        raise RunError(f"{there} exists already; choose another --name, or resume it: volary sweep {there}")

    @classmethod
    def all_in(cls, folder: Path) -> list[Sweep]:
        """The sweeps in `folder` that can be read, by name."""
        found = []
        for file in sorted(folder.glob(f"[!.]*/{FILE}")):
            with suppress(RunError):
                found.append(cls.existing(file.parent))
        return found

    @classmethod
    def existing(cls, folder: Path) -> Sweep:
        """The one in `folder`. Raises RunError if there is none."""
        try:
            with open_regular(folder / FILE) as file:
                members = msgspec.json.decode(file.read(), type=dict[str, dict[str, str]])
            for name in members:
                check_name("the name of a run", name)  # never a path
        except (OSError, ValueError, SettingError, msgspec.MsgspecError) as error:
            raise RunError(f"{folder} is no sweep: {FILE} cannot be read: {error}") from None
        return cls(folder.absolute(), members)
