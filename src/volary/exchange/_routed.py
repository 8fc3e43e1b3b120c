"""What the exchanges have in common in which every worker keeps all parameters: the way that sums take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.comm.routes import ROOM as ROUTES
from volary.errors import SettingError
from volary.plugins import unknown

if TYPE_CHECKING:
    from volary.comm.routes._base import Bulletin
    from volary.exchange._ground import Ground


@dataclass(frozen=True, kw_only=True)
class Routed:
    """Settings of the way; see `volary.exchange._ground.Ground`. equal: replicas are the same, bit for bit."""

    route: str = "auto"  # the way a sum takes: shared, torch, ring, tree, linear, two_level, three_level; auto chooses
    topology: str | None = None  # a file that describes sub-networks (default: found by measuring)
    behind: bool = False  # contributions travel under all of the next step, and are applied a step late

    served: ClassVar[bool] = False  # no server keeps the parameters

    def __post_init__(self) -> None:
        known = ["auto", "shared", *ROUTES.names()]
        if self.route not in known:
            raise SettingError(f"route is an {unknown(self.route, known)}")
        if self.topology is not None and self.route in ("shared", "torch"):
            others = ", ".join(name for name in known if name not in ("shared", "torch"))
            raise SettingError(
                f"topology is given and route is {self.route!r}, which asks for none; accepted: {others}"
            )

    def ground(self, bulletin: Bulletin) -> Ground:
        """Find where the exchange takes place. A collective call of ranks that have joined the default group."""
        from volary.exchange._ground import Ground

        return Ground(bulletin, self.route, self.topology, behind=self.behind)
