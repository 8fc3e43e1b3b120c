"""Drafts of a checkpoint: where the ranks of a group write it, and who makes it count."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
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
    """Every rank begins, writes, commits and settles, together; rank 0 takes up. All that write raise OSError.

    checkpoints: where those are that `have` has named, to be read.
    """

    checkpoints: Checkpoints

    @property
    def newest(self) -> int | None:
        """The step of the checkpoint that came to count last, or was taken up; known to rank 0."""
        ...

    def at_once(self) -> Drafts:
        """The drafts for a run's last save: they need no driver if these need none."""
        ...

    def begin(self, step: int) -> None:
        """Make room for the checkpoint of `step`."""
        ...

    def write(self, step: int, name: str, content: Content) -> str:
        """Write one file of it; its checksum."""
        ...

    def commit(self, step: int, world_size: int, files: Mapping[str, str], metric: float | None) -> None:
        """Let it count, as soon as all its files are where they belong; then that is told. files: checksum by name."""
        ...

    def give_up(self, step: int) -> None:
        """Delete the draft of `step`."""
        ...

    def settle(self) -> None:
        """Wait until what was committed counts. Raises OSError if it does not."""
        ...

    def take_up(self) -> tuple[int | None, list[str]]:
        """The step that the run continues from, None if it begins, and a sentence for each damaged checkpoint."""
        ...

    def have(self, step: int, *, whole: bool) -> Manifest:
        """See that the checkpoint of `step` can be read. whole: all of it, not this rank's part. Raises RunError."""
        ...

    def close(self) -> None:
        """End what writes in the background: no draft is written any more."""
        ...


class LocalDrafts:
    """Drafts in the run's directory, which all ranks see, or in a store: a checkpoint counts when it is committed."""

    def __init__(self, checkpoints: Checkpoints, recorder: Recorder, keep_last: int, *, keep_best: bool) -> None:
        self.checkpoints = checkpoints
        self.newest: int | None = None
        self._recorder, self._keep_last, self._keep_best = recorder, keep_last, keep_best
        self._began_at = 0.0

    def at_once(self) -> LocalDrafts:
        return self

    def begin(self, step: int) -> None:
        """Make an empty draft; remove leftovers."""
        if self._recorder.leads:
            self._began_at = time.perf_counter()
            self.checkpoints.begin(step)

    def write(self, step: int, name: str, content: Content) -> str:
        return self.checkpoints.write(step, name, content)

    def commit(self, step: int, world_size: int, files: Mapping[str, str], metric: float | None) -> None:
        """Commit at once; rank 0 records the event."""
        if self._recorder.rank:
            return
        path = self.checkpoints.commit(step, world_size, files, metric)
        self.newest = step
        seconds = time.perf_counter() - self._began_at
        self._recorder.event("checkpoint", step=step, path=str(path), seconds=seconds)
        self.checkpoints.keep(self._keep_last, keep_best=self._keep_best)

    def give_up(self, step: int) -> None:
        self.checkpoints.give_up(step)

    def settle(self) -> None:
        """Wait for nothing: what is committed counts."""

    def take_up(self) -> tuple[int | None, list[str]]:
        """Find the newest checkpoint in the run's directory; set damaged ones aside."""
        manifest, warnings = self.checkpoints.take_up()
        self.newest = None if manifest is None else manifest.step
        return self.newest, warnings

    def have(self, step: int, *, whole: bool) -> Manifest:
        # a store brings what is of ranks, and, where that is not enough, all
        rank = rank_file(self._recorder.rank)
        if not whole and rank in (manifest := self.checkpoints.bring(step, is_of_rank)).files:
            return manifest
        return self.checkpoints.bring(step)

    def close(self) -> None:
        pass


class RemoteDrafts:
    """Drafts in memory until a thread has sent them to the driver, while training continues.

    All ranks of a run use these if some of them do not see the run's directory. A save waits for the one before.
    """

    def __init__(self, member: Membership) -> None:
        self._member = member
        self.checkpoints = Checkpoints(member.directory.checkpoints)
        self.newest: int | None = None
        self._jobs: queue.Queue[Callable[[FileClient], None] | None] = queue.Queue()
        self._client: FileClient | None = None
        self._step, self._failure = -1, ""
        self._thread = threading.Thread(target=self._carry, name="checkpoints", daemon=True)
        self._thread.start()

    def at_once(self) -> RemoteDrafts:
        return self

    def begin(self, step: int) -> None:
        """Do nothing: the driver makes the draft when the first file comes."""

    def write(self, step: int, name: str, content: Content) -> str:
        """Hold it until it has been sent; waits for what was to be sent of an earlier step."""
        if step != self._step:
            self._jobs.join()
            self._step = step
        self._failure = ""
        data = whole(content)
        checksum = digest(data)
        self._jobs.put(lambda client: client.send("checkpoint", data, checksum, step, name))
        return checksum

    def commit(self, step: int, world_size: int, files: Mapping[str, str], metric: float | None) -> None:
        """As rank 0 let the driver commit, which records that, too."""

        def count(client: FileClient) -> None:
            client.commit(step, world_size, files, metric)
            self.newest = step

        if self._member.place.leads:
            self._jobs.put(count)

    def give_up(self, step: int) -> None:
        pass

    def settle(self) -> None:
        """Wait until the driver has all, and has said so."""
        self._jobs.join()
        if self._failure:
            raise OSError(self._failure)

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

    def close(self) -> None:
        """Send what is to be sent, unless that cannot be."""
        self._jobs.put(None)
        if self._jobs.unfinished_tasks == 1:  # else it carries on as long as this process does
            self._thread.join()

    def _carry(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                self._do(job)
            finally:
                self._jobs.task_done()
        self._leave()

    def _do(self, job: Callable[[FileClient], None]) -> None:
        for again in (True, False):
            try:
                self._client = self._client or self._member.files()
                job(self._client)
                return
            except FileNotKept as error:
                self._failure = self._failure or str(error)
                return
            except (OSError, VolaryError) as error:
                self._leave()
                if not again:
                    self._failure = self._failure or str(error)

    def _leave(self) -> None:
        if self._client is not None:
            with suppress(OSError):
                self._client.close()
        self._client = None
