"""All-reduce: every worker keeps all parameters, and contributions are summed among all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from volary.comm.routes import ROOM as ROUTES
from volary.comm.topology.route_choice import SHARED, choose, plugins
from volary.errors import SettingError
from volary.exchange._base import Exchange
from volary.plugins import unknown

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.comm.topology.topology import Topology
    from volary.exchange.gradients.owned import OwnedValues
    from volary.exchange.overlap.comm_setup import CommSetup

_TO_OWNERS = ("auto", SHARED, "ring")  # routes by which a sum can come to one worker alone


@dataclass(frozen=True, kw_only=True)
class AllReduce(Exchange):
    """Sums in shared memory where all workers are on one machine, else over the route that suits the network."""

    route: str = "auto"  # how sums travel: shared, or one of `volary.comm.routes`; auto chooses
    topology: str | None = None  # a file that describes sub-networks (default: found by measuring)
    behind: bool = False  # contributions travel under all of the next step, and are applied a step late

    equal: ClassVar[bool] = True  # replicas, bit for bit

    def __post_init__(self) -> None:
        known = ["auto", SHARED, *ROUTES.names()]
        if self.route not in known:
            raise SettingError(f"route is an {unknown(self.route, known)}")
        if self.route in ROUTES.names():
            ROUTES.load(self.route)  # refuses a file that is not whole
        if self.topology is not None:
            unasked = {SHARED, *(name for name, route in plugins().items() if route.anywhere)}
            others = ", ".join(name for name in known if name not in unasked)
            if self.route in unasked:
                raise SettingError(
                    f"topology is given and route is {self.route!r}, which asks for none; accepted: {others}"
                )
        if self.behind and self.route == SHARED:
            raise SettingError(
                "behind is true and route is 'shared', where nothing travels that could be hidden; accepted: route=auto"
            )

    @property
    def lacks(self) -> Mapping[str, str]:
        found = {"versions": "with exchange=allreduce every worker has all parameters, as of one step"}
        if self.route == SHARED:
            found["wire"] = "with exchange.route=shared workers add in shared memory, where nothing travels"
        if self.behind:
            found |= dict.fromkeys(
                ("whole gradient", "gradient norm", "shares"),
                "with exchange.behind=true gradients are applied chunk by chunk as they come",
            )
        if self.route not in _TO_OWNERS:
            found["shares"] = f"with exchange.route={self.route} all workers get all sums"
        return found

    def check(self, topology: Topology | None) -> None:
        """Look at what workers would refuse once they have met. topology: of theirs, if it is known by now.

        Raises SettingError.
        """
        if self.topology is not None:
            from volary.comm.topology.topology import subnetworks_in

            subnetworks_in(Path(self.topology))
        if topology is not None and len(topology.order) > 1:
            choose(self.route, topology, [])

    def count(self, workers: int) -> int:
        """Server processes of a run: none, as every worker keeps all parameters."""
        return 0

    def comm_setup(self, group: Group, owned: OwnedValues | None = None) -> CommSetup:
        """Find where the exchange takes place. A collective call. owned: who alone keeps what; None: all keep all."""
        from volary.exchange.overlap.comm_setup import CommSetup

        return CommSetup(group, self.route, self.topology, behind=self.behind, owned=owned)


EXCHANGE = AllReduce
