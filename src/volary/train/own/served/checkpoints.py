"""Checkpoints of a user's own loop over servers, which write network and optimiser; workers write the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from volary.errors import BadInput, RunError
from volary.naming import unwrapped
from volary.run.checkpoints import SHARED, Checkpoints
from volary.train.member.remote_directory import bring, writer
from volary.train.state.rank_state import rank_file
from volary.train.state.state_file import state_content

if TYPE_CHECKING:
    from pathlib import Path

    from volary.run.checkpoints import Manifest
    from volary.run.content import Content
    from volary.train.member.process import Membership
    from volary.train.own.served.loop import ServedLoop

Alike = Callable[[], "Iterator[tuple[str, Content]]"]


class ServedCheckpoints:
    """See `volary.train.own.keeping.LoopCheckpoints`. The run's roster says of which update a checkpoint is."""

    def __init__(self, loop: ServedLoop, member: Membership) -> None:
        self.rank, self.size = loop.rank, loop.size
        self._loop, self._member = loop, member
        self._checkpoints = Checkpoints(member.directory.checkpoints)
        self._write = writer(member.remote, self._checkpoints)
        self._saving: tuple[dict[str, Any], Alike] | None = None

    def newest(self) -> tuple[Manifest, Path] | None:
        """The driver has looked whether it is whole. A worker that joins later begins anew."""
        if self.rank >= self.size or (step := self._newest_step()) is None:
            return None
        manifest = bring(self._member.remote, self._checkpoints, step)
        return (manifest, self._checkpoints.path(step)) if SHARED in manifest.files else None

    def on_servers(self, value: Any) -> bool:
        return any(unwrapped(value) is unwrapped(one) for one in self._loop.models)

    def write(self, mine: dict[str, Any], alike: Alike) -> None:
        """As of the newest update, once all who keep step are here; the roster reports it. Raises BadInput, Stopped."""
        if not self._loop.began:
            raise BadInput("worker.save was called before the first batch; accepted with exchange=server: after a step")
        self._saving = mine, alike
        try:
            self._loop.steps.save()
        finally:
            self._saving = None

    def write_own(self, step: int, residuals: dict[str, Any], first: bool) -> dict[str, str]:
        """This worker's files of the checkpoint of `step`, checksums by name. Raises OSError. From any thread."""
        mine, alike = self._saving or ({}, None)
        files = {rank_file(self.rank): state_content({**mine, **residuals})}
        if first and alike is not None:
            files |= dict(alike())
        return {name: self._write(step, name, content) for name, content in files.items()}

    def _newest_step(self) -> int | None:
        if self._member.remote is None or self._checkpoints.in_store:
            return max(self._checkpoints.steps(), default=None)
        try:
            with closing(self._member.files()) as client:
                return client.take_up().step
        except OSError as error:
            raise RunError(str(error)) from None
