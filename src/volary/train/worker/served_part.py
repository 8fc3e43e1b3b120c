"""A worker's part of what servers keep: all of it, or what it alone has of a replica that it holds with others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from volary.comm.groups.layer_group import LayerGroup
from volary.train.served.layout import lay_out
from volary.train.served.replica_parts import ReplicaParts, held_by_replica, part_of
from volary.train.worker.connect import joined
from volary.train.worker.over_servers import network_facts

if TYPE_CHECKING:
    from contextlib import ExitStack

    import torch

    from volary.partition._base import Part
    from volary.train.member.compare import Facts
    from volary.train.member.process import Membership
    from volary.train.model import Model
    from volary.train.recording.recorder import Recorder
    from volary.train.served.layout import Layout


@dataclass(frozen=True)
class ServedPart:
    """layout: of what this worker exchanges with servers. plan: facts of the network and of how all of it is cut.

    parts: of its replica, if others hold some.
    """

    layout: Layout
    plan: Facts
    parts: ReplicaParts | None

    @property
    def leads(self) -> bool:
        """Whether this worker speaks for its replica."""
        return self.parts is None or self.parts.leads

    @classmethod
    def of(
        cls, held: ExitStack, member: Membership, recorder: Recorder, device: torch.device, model: Model
    ) -> ServedPart:
        """The part of `model`, which alone this worker has from now on. held: what ends with it is put there.

        Waits for those who hold the same replica. Raises PeerLost, and SettingError as `lay_out`.
        """
        layout = lay_out(model, held_by_replica(model))
        plan = network_facts(model.module, layout)
        if model.session.strategy.ranks_each == 1:
            return cls(layout, plan, None)
        parts = _joined(held, member, recorder, device, part_of(model, member.place.rank))
        return cls(layout.of_rank(parts.group.rank, model.module), plan, parts)


def _joined(held: ExitStack, member: Membership, recorder: Recorder, device: torch.device, part: Part) -> ReplicaParts:
    """Meet those who hold the replica together, and be left with `part`. held: what ends with the worker is put there.

    A collective call. Raises PeerLost.
    """
    mesh = part.holdings.of_replica
    place = replace(member.place, rank=mesh.rank, world_size=mesh.mesh.size)
    replica = f"/replica {member.place.rank // mesh.mesh.size}"
    group = held.enter_context(joined(replace(member, place=place), recorder, device, part=replica))
    assert part.join is not None, "a part that ranks hold together"
    layers = part.join(group)
    if isinstance(layers, LayerGroup):
        layers.waiting = recorder.waiting
    recorder.part = part.place
    if part.notes and recorder.leads:
        recorder.note(**part.notes)
        recorder.event("exchange", **part.notes)
    return ReplicaParts(part, layers)
