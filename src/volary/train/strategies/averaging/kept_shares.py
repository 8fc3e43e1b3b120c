"""The share that a worker keeps of parameters which a group shares out: it alone changes that, and all read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from volary.comm.groups.blocking import gather_plain
from volary.exchange.gradients.plan import values_in
from volary.naming import trained_parameters
from volary.sharding.ranges import Range
from volary.train.agreement.first_state import share_now
from volary.train.strategies.averaging.skeleton import put
from volary.train.update.swapped import spread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from volary.comm.groups.group import Group
    from volary.sharding.holdings import Holdings
    from volary.train.agreement.first_state import DeferredTensors


class KeptShares:
    """A copy of what this rank keeps of the trained parameters of `network`, under their names, each flat: `module`.

    holdings: of the ranks of `group`, which share them out. everyone: all groups' ranks. gathers_anew: see
    `volary.train.replica.Voting`.
    """

    def __init__(
        self, network: nn.Module, holdings: Holdings, group: Group, everyone: Group, gathers_anew: Callable[[], bool]
    ) -> None:
        self._network, self._holdings, self._group, self._gathers_anew = network, holdings, group, gathers_anew
        self._everyone = everyone
        self._kept: Mapping[str, Sequence[Tensor]] = {
            name: [values_in(part, one) for part in holdings.kept(Range(name, 0, one.numel()))]
            for name, one in trained_parameters(network).items()
        }
        self.module = nn.Module()
        self._copies: dict[str, nn.Parameter] = {}
        for name, kept in self._kept.items():
            if kept:
                self._copies[name] = nn.Parameter(torch.cat(list(kept)))
                put(self.module, name, self._copies[name])

    def begin(self, late: DeferredTensors) -> None:
        """Give all ranks what rank 0 has, and wait for it, while each has all parameters. A collective call."""
        share_now([] if late.shares else list(self._network.parameters()), late, self._everyone)

    @torch.no_grad()
    def take(self) -> None:
        """Copy what this rank keeps."""
        for name, copy in self._copies.items():
            torch.cat(list(self._kept[name]), out=copy.detach())

    def give(self) -> None:
        """Let all of the group have what each has in its copy. A collective call."""
        # ranks of a machine may have parameters in one memory, and read each other's share
        gather_plain(None, self._group)
        self.give_own()
        spread(self._network, self._holdings, self._group, self._gathers_anew)

    @torch.no_grad()
    def give_own(self) -> None:
        """Let what this rank keeps have the values of its copy."""
        for name, copy in self._copies.items():
            kept = self._kept[name]
            for values, own in zip(kept, copy.split([one.numel() for one in kept]), strict=True):
                values.copy_(own)
