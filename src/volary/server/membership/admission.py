"""Admits workers to a run: those with a free place, whose data is as large as that of the first."""

from __future__ import annotations

from volary.comm.control.errors import BadMessage
from volary.server.membership.members import Members
from volary.server.protocol.hello import WorkerHello


class WorkerAdmission:
    """places: of the run, None where any number may come. first: the hello of the first worker that came."""

    def __init__(self, places: int | None, members: Members) -> None:
        self._places, self._members = places, members
        self.first: WorkerHello | None = None

    def refusal(self, hello: WorkerHello) -> str:
        """Why a worker may not come; empty if it may. Raises BadMessage for a hello that makes no sense."""
        rank = hello.rank
        if rank < 0 or hello.samples < 1 or hello.validation < 0 or hello.batch_size < 0:
            raise BadMessage(
                f"rank {rank} says that it has {hello.samples} samples, and {hello.validation} for validation"
            )
        if self._places is not None and rank >= self._places:
            return f"there is no place for a rank {rank} in this run"
        if self._members.was_here(rank):
            return f"rank {rank} was here before"
        self.first = self.first or hello
        if _sizes(hello) != _sizes(self.first):
            return "its data has another number of samples than that of the first worker"
        return ""


def _sizes(hello: WorkerHello) -> tuple[int, int, int]:
    return hello.samples, hello.validation, hello.batch_size
