"""The hosts of a lab, their switches and links: plain facts, nothing is made here.

Each host hangs on the switch of its group by a link of its own; with several groups, each switch on a core by a trunk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from volary.errors import SettingError
from volary.lab.network import rates
from volary.lab.network.distance import Distance

MOST_HOSTS = 200
_SUBNET = "10.91.0"

Rate = str | float | None


@dataclass(frozen=True)
class LabTopology:
    """rates: of each host's link, and trunk: of each group's, in bits per second, both directions; None: no limit.

    groups: switches; hosts are spread over them in equal blocks, in order. distance: between any two hosts; None: none.
    """

    rates: tuple[int | None, ...]
    groups: int = 1
    trunk: int | None = None
    distance: Distance | None = None

    def __post_init__(self) -> None:
        hosts = len(self.rates)
        if not 1 <= hosts <= MOST_HOSTS:
            raise SettingError(f"hosts is {hosts}; accepted: 1 to {MOST_HOSTS}")
        if self.groups < 1 or hosts % self.groups:
            raise SettingError(
                f"groups is {self.groups} with {hosts} hosts; accepted: a number that divides them evenly"
            )
        if self.trunk is not None and self.groups == 1:
            raise SettingError(
                "trunk is the link between groups, and there is one group; accepted: with groups of 2 or more"
            )

    @classmethod
    def of(
        cls,
        hosts: int,
        rate: Rate = None,
        each: Sequence[Rate] | None = None,
        slow: Mapping[int, Rate] | None = None,
        groups: int = 1,
        trunk: Rate = None,
        distance: Distance | None = None,
    ) -> LabTopology:
        """Rates as in "1gbit". each: one per host instead of `rate`. slow: other rates for some hosts.

        Raises SettingError if they do not fit together.
        """
        if each is not None and rate is not None:
            raise SettingError("both rate and rates are given; accepted: one of them")
        if each is not None and len(each) != hosts:
            raise SettingError(f"rates names {len(each)} rates for {hosts} hosts; accepted: one per host")
        found = [rates.parse(one) for one in (each if each is not None else [rate] * max(0, hosts))]
        for host, one in (slow or {}).items():
            if not 0 <= host < hosts:
                raise SettingError(f"slow names host {host}; accepted: 0 to {hosts - 1}")
            found[host] = rates.parse(one)
        return cls(tuple(found), groups, rates.parse(trunk), distance)

    @property
    def hosts(self) -> int:
        return len(self.rates)

    def name(self, host: int) -> str:
        """The host's name, which resolves on all hosts: "h0"."""
        return f"h{host}"

    def address(self, host: int) -> str:
        return f"{_SUBNET}.{host + 1}"

    @property
    def network(self) -> str:
        """The network that all addresses are in, as "10.0.0.0/24"."""
        return f"{_SUBNET}.0/24"

    def group(self, host: int) -> int:
        """The group that the host is in."""
        return host * self.groups // self.hosts

    def limit(self, sender: int, receiver: int) -> int | None:
        """The least rate on the way between two hosts, in bits per second; None if nothing limits it."""
        way = [self.rates[sender], self.rates[receiver]]
        if self.group(sender) != self.group(receiver):
            way.append(self.trunk)
        return min((rate for rate in way if rate is not None), default=None)

    def check_host(self, host: int) -> int:
        """The host, if there is one of that number. Raises SettingError."""
        if not 0 <= host < self.hosts:
            raise SettingError(f"there is no host {host}; accepted: 0 to {self.hosts - 1}")
        return host

    def check_group(self, group: int) -> int:
        """The group, if it has a trunk. Raises SettingError."""
        if self.groups == 1 or not 0 <= group < self.groups:
            known = f"0 to {self.groups - 1}" if self.groups > 1 else "none, as there is one group"
            raise SettingError(f"there is no trunk of group {group}; accepted: {known}")
        return group
