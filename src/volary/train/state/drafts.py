"""Drafts of a checkpoint: where the ranks of a group write it, and who makes it count."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Protocol

from volary.comm.files.client import FileClient, FileNotKept
from volary.errors import RunError, VolaryError
from volary.run.checkpoints import Checkpoints, Manifest, digest
from volary.run.content import whole
from volary.train.state.rank_state import is_of_rank, rank_file

if TYPE_CHECKING:
    from volary.run.content import Content
    from volary.train.member.process import Membership
    from volary.train.recording.recorder import Recorder


class Drafts(Protocol):
    """Every rank begins, writes and commits, together; rank 0 takes up. All that write raise OSError. From any thread.

    checkpoints: where those are that `have` has named, to be read. alone: whether this worker is without a driver.
    """

    checkpoints: Checkpoints
    alone: Callable[[], bool]

    @property
    def newest(self) -> int | None:
        """The step of the checkpoint that came to count last, or was taken up; known to rank 0."""
        ...

    def begin(self, step: int) -> None:
        """Make room for the checkpoint of `step`."""
        ...

    def write(self, step: int, name: str, content: Content) -> str:
        """Write one file of it; its checksum."""
        ...

    def commit(self, step: int, world_size: int, files: Mapping[str, str], metric: float | None) -> None:
        """Let it count, and record that. files: checksum by name."""
        ...

    def give_up(self, step: int) -> None:
        """Delete the draft of `step`."""
        ...

    def take_up(self) -> tuple[int | None, list[str]]:
        """The step that the run continues from, None if it begins, and a sentence for each damaged checkpoint."""
        ...

    def have(self, step: int, *, whole: bool) -> Manifest:
        """See that the checkpoint of `step` can be read. whole: all of it, not this rank's part. Raises RunError."""
        ...


class DirectoryDrafts:
    """Drafts in the run's directory, which all ranks see, or in a store: a checkpoint counts when it is committed."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        recorder: Recorder,
        keep_last: int,
        *,
        keep_best: bool,
        alone: Callable[[], bool] = lambda: False,
    ) -> None:
        self.checkpoints, self.alone = checkpoints, alone
        self.newest: int | None = None
        self._recorder, self._keep_last, self._keep_best = recorder, keep_last, keep_best
        self._began_at = 0.0

    def begin(self, step: int) -> None:
        """Make an empty draft; remove leftovers."""
        if self._recorder.leads:
            self._began_at = time.perf_counter()
            self.checkpoints.begin(step)

    def write(self, step: int, name: str, content: Content) -> str:
        return self.checkpoints.write(step, name, content)

    def commit(self, step: int, world_size: int, files: Mapping[str, str], metric: float | None) -> None:
        """Commit at once; rank 0 records the event."""
        if not self._recorder.leads:
            return
        path = self.checkpoints.commit(step, world_size, files, metric)
        self.newest = step
        seconds = time.perf_counter() - self._began_at
        self._recorder.event_of(step, "checkpoint", {"step": step, "path": str(path), "seconds": seconds})
        self.checkpoints.keep(self._keep_last, keep_best=self._keep_best)

    def give_up(self, step: int) -> None:
        self.checkpoints.give_up(step)

    def take_up(self) -> tuple[int | None, list[str]]:
        """Find the newest checkpoint in the run's directory; set damaged ones aside."""
        manifest, warnings = self.checkpoints.take_up()
        self.newest = None if manifest is None else manifest.step
        return self.newest, warnings

    def have(self, step: int, *, whole: bool) -> Manifest:
        # a store brings what is of ranks, and, where that is not enough, all
        rank = rank_file(self._recorder.place)
        if not whole and rank in (manifest := self.checkpoints.bring(step, is_of_rank)).files:
            return manifest
        return self.checkpoints.bring(step)


class RemoteDrafts:
    """Drafts that the driver writes: files are sent to it.

    All ranks of a run use these if some of them do not see the run's directory.
    """

    def __init__(self, member: Membership, alone: Callable[[], bool] = lambda: False) -> None:
        self._member, self.alone = member, alone
        self.checkpoints = Checkpoints(member.directory.checkpoints)
        self.newest: int | None = None

    def begin(self, step: int) -> None:
        """Do nothing: the driver makes the draft when the first file comes."""

    def write(self, step: int, name: str, content: Content) -> str:
        data = whole(content)
        checksum = digest(data)
        self._ask(lambda client: client.send("checkpoint", data, checksum, step, name))
        return checksum

    def commit(self, step: int, world_size: int, files: Mapping[str, str], metric: float | None) -> None:
        """As rank 0 let the driver commit, which records that, too."""
        if self._member.place.leads:
            self._ask(lambda client: client.commit(step, world_size, files, metric))
            self.newest = step

    def give_up(self, step: int) -> None:
        """Do nothing: the driver removes it when the next one begins."""

    def take_up(self) -> tuple[int | None, list[str]]:
        try:
            with closing(self._member.files()) as client:
                found = client.take_up()
        except OSError as error:
            raise RunError(str(error)) from None
        self.newest = found.step
        return found.step, found.warnings

    def have(self, step: int, *, whole: bool) -> Manifest:
        """Fetch it: what is this rank's own, and, where that is not enough, all."""
        remote, rank = self._member.remote, self._member.place.rank
        if remote is None:
            return self.checkpoints.manifest(step)
        if not whole and rank_file(rank) in (manifest := remote.fetch(step, is_of_rank)).files:
            return manifest
        return remote.fetch(step)

    def _ask(self, what: Callable[[FileClient], None]) -> None:
        """Over a connection of its own; once more if that breaks. Raises OSError."""
        try:
            self._once(what)
        except FileNotKept:
            raise
        except (OSError, VolaryError):
            try:
                self._once(what)
            except VolaryError as error:
                raise OSError(str(error)) from None

    def _once(self, what: Callable[[FileClient], None]) -> None:
        with closing(self._member.files()) as client:
            what(client)
