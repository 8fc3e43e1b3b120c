"""The protocol of route plug-ins: where a route can be taken, and how it is made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.comm.sums.route import BufferShape, Route
    from volary.comm.topology.topology import Topology


class RoutePlugin(ABC):
    """A file of the room: where a route can be taken, and how it is made. Defaults: anywhere, if it is asked for.

    levels: it sums inside nodes, in their memory, before it sums between them. anywhere: values may be on an
    accelerator, and it asks for no topology; others add in the machine's memory. preference: of those with one, `auto`
    takes the highest that can be taken; without one it is taken if it is asked for, or was measured to be fastest.
    """

    levels: ClassVar[bool] = False
    anywhere: ClassVar[bool] = False
    preference: ClassVar[int] = 0

    def refusal(self, topology: Topology) -> str:
        """Why it cannot be taken among these ranks; empty if it can."""
        return ""

    @abstractmethod
    def build(self, group: Group, shapes: Sequence[BufferShape], topology: Topology) -> Route:
        """The route for buffers of `shapes` among the ranks of `group`. A collective call.

        Raises SettingError for values that it cannot sum, OSError, on all ranks of a node, if there is not so much
        shared memory there.
        """
