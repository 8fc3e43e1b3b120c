"""Links by codec, which count what travels of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from volary.comm.topology.mesh_links import for_small_messages
from volary.run.database.traffic import Traffic

if TYPE_CHECKING:
    import torch

    from volary.comm.groups.group import Group
    from volary.comm.topology.links import Links
    from volary.comm.topology.mesh_links import MeshLinks


class CodecLinks:
    """Links of each of these `codecs`, by name: so what travels is counted by codec. A collective call.

    direction: where it travels, as traffic is listed by.
    """

    def __init__(self, group: Group, device: torch.device, codecs: Iterable[str], direction: str) -> None:
        self._links = {codec: for_small_messages(group, device) for codec in dict.fromkeys(codecs)}
        self._plain_bytes, self._direction = dict.fromkeys(self._links, 0), direction

    def begin(self, codec: str, plain_bytes: int) -> Links | MeshLinks:
        """The links for a sum by `codec`, which takes so many bytes without it."""
        self._plain_bytes[codec] += plain_bytes
        return self._links[codec]

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        """The bytes that this rank has sent and received, by codec."""
        return tuple(
            Traffic(codec, self._direction, links.sent_bytes, links.received_bytes, self._plain_bytes[codec])
            for codec, links in self._links.items()
        )
