"""The setup of an all-reduce: the ranks' links, the topology, and the route that sums take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING

from volary.comm.groups.group import LAST_RESORT_S
from volary.comm.routes import ROOM as ROUTES
from volary.comm.sums.partner_means import PartnerMeans
from volary.comm.sums.segments import SharedSum
from volary.comm.topology.route_choice import SHARED, fallback
from volary.errors import SettingError
from volary.exchange.compression.error_feedback import ErrorFeedback
from volary.exchange.gathering.gathered import GatheredParameters
from volary.exchange.gradients.owned import FREED_MB, OwnedValues
from volary.exchange.overlap.across import AcrossReplicas
from volary.exchange.overlap.blocking import BlockingKeeper
from volary.exchange.overlap.broadcasts import Broadcasts
from volary.exchange.overlap.known_links import KnownLinks
from volary.exchange.overlap.mixed_routes import MixedRoutes
from volary.exchange.overlap.overlapped import OverlappedKeeper
from volary.exchange.overlap.owned import around_a_ring, in_shared_memory
from volary.exchange.representations import representation_in
from volary.exchange.representations._base import Site
from volary.exchange.representations.exact import EXACT
from volary.run.database.traffic import Traffic

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.comm.routes._base import RoutePlugin
    from volary.comm.sums.partner_means import Partners
    from volary.comm.sums.route import BufferShape, BufferSums, Route
    from volary.exchange._base import ReplicatedKeeper
    from volary.exchange.gradients.plan import BucketPlan
    from volary.exchange.representations._base import CodedSums, Representation


class CommSetup:
    """Found once for all keepers of a group; finding it is a collective call, and so is `build`.

    route: as set, or "auto". topology: a file that describes it. levels: sums inside nodes come before those between
    them. shared: what was built last adds in shared memory, where nothing travels. behind: what is contributed is to
    travel while others compute, so not in shared memory. owned: of values that one rank each keeps, who does; None: all
    keep all. Raises SettingError, on all ranks, if the file does not fit.
    """

    def __init__(
        self, group: Group, route: str, topology: str | None, *, behind: bool, owned: OwnedValues | None = None
    ) -> None:
        self._wanted, self.behind, self.levels, self.shared = route, behind, False, False
        self.owned = owned
        self._gathered: GatheredParameters | None = None
        self.links = within = KnownLinks(group, topology)
        if owned is not None and owned.mesh.data > 1:
            self._within, self._across = group.along(owned.mesh, "shard"), group.along(owned.mesh, "data")
            within = KnownLinks(self._within, None)
        self._ring, self._numbers = within.topology, count()

    def frees(self, representations: Mapping[str, Representation]) -> bool:
        """Whether the memory of all gradients is returned once they are with their owners."""
        plain = all(one == EXACT for one in representations.values())
        return plain and self.owned is not None and self.owned.frees

    def bucket_mb(self, as_set: float, representations: Mapping[str, Representation]) -> float:
        """MiB that travel at once: as set, but little where memory is returned then."""
        return min(as_set, FREED_MB) if self.frees(representations) else as_set

    def build(
        self,
        group: Group,
        plans: Sequence[BucketPlan],
        box: BufferShape,
        left_out: Callable[[str], None] | None = None,
        partners: Partners | None = None,
    ) -> ReplicatedKeeper:
        """The keeper of buckets with these plans, and after them of a buffer like `box`.

        group: with a bulletin of this keeper alone. left_out: called with a sentence about values that are not finite
        and so cannot be encoded; None: NotFinite is raised. partners: buckets are not summed over all ranks, but become
        the mean with these, as of `PartnerMeans`.

        Raises SettingError, on all ranks, if the route cannot be taken.
        """
        if self.owned is not None:
            return self._build_owned(group, plans, box, self.owned, left_out)
        shapes, errors = [*(plan.shape for plan in plans), box], ErrorFeedback(plans, undoes=left_out is not None)
        exact = [number for number, plan in enumerate(plans) if plan.representation == EXACT and partners is None]
        exact.append(len(plans))
        odd = "sums that travel under the next step" if self.behind else _odd(plans, partners)
        name, reason = self._chosen([shapes[number] for number in exact], odd=odd)
        if name == SHARED:
            try:
                shared = SharedSum(group.bulletin, shapes, LAST_RESORT_S)
                self.shared = True
                return BlockingKeeper(shared, group, errors, f"shared memory, since {reason}")
            except OSError as error:
                reason = f"shared memory cannot be used: {error}"
                if self._wanted == SHARED:
                    accepted = f"auto, {fallback()}"
                    raise SettingError(f"exchange.route is {name!r}, but {reason}; accepted: {accepted}") from None
                name = fallback()
        taken: RoutePlugin = ROUTES.load(name)()
        self.levels, self.shared = taken.levels, False
        dense = taken.build(group, [shapes[number] for number in exact], self.links.topology)
        coded: list[tuple[CodedSums, Sequence[int]]] = []
        # between nodes: in memory that ranks share nothing is gained by fewer bytes
        within = self.links.topology if self.levels else None
        for kind in dict.fromkeys(type(plan.representation) for plan in plans if plan.representation != EXACT):
            numbers = [number for number, plan in enumerate(plans) if type(plan.representation) is kind]
            own = [plans[number] for number in numbers]
            site = Site(group.within(kind.__name__), within, errors, left_out)
            coded.append((representation_in(own[0]).sums(own, site), numbers))
        if partners is not None:
            coded = [(PartnerMeans(group, shapes[:-1], partners), range(len(plans)))]
        route = MixedRoutes([(dense, exact), *coded]) if coded else dense
        on_cpu = all(shape.device.type == "cpu" for shape in shapes)
        broadcasts = self.links.broadcasts()

        def counted() -> tuple[Traffic, ...]:
            return (
                _plain(name, dense),
                *(one for sums, _ in coded for one in sums.traffic),
                _plain("broadcast", broadcasts),
            )

        summary = f"{name}, since {reason}" if partners is None else f"parameters between partners, votes over {name}"
        return OverlappedKeeper(route, broadcasts, errors, summary, on_cpu, counted)

    def _build_owned(
        self,
        group: Group,
        plans: Sequence[BucketPlan],
        box: BufferShape,
        owned: OwnedValues,
        left_out: Callable[[str], None] | None,
    ) -> ReplicatedKeeper:
        """As `build`: the sums of a value come to its owner alone, and what it updates to all."""
        shapes = [*(plan.shape for plan in plans), box]
        errors = ErrorFeedback(plans, undoes=left_out is not None)
        if odd := next((shape.device for shape in shapes if shape.device.type != "cpu"), None):
            raise SettingError(
                f"workers that keep shares add them up on the processor, the values are on {odd}; accepted: "
                "partition=data, or train.device=cpu"
            )
        # once they are gathered, no rank has all parameters that could be put into shared memory
        gathered = "gathered parameters" if self._gathered is not None else ""
        apart = "sums of several groups" if owned.mesh.data > 1 else ""
        of_loop = "" if owned.once else "parameters of a loop of your own"
        name, reason = self._chosen(shapes, odd=_odd(plans) or gathered or of_loop or apart)
        broadcasts = self.links.broadcasts()
        route: BufferSums
        sums: Sequence[CodedSums] = ()
        added: AcrossReplicas | None = None
        self.shared = name == SHARED
        if self.shared:
            try:
                route, copies = in_shared_memory(group, plans, box, owned)
            except OSError as error:
                if self._wanted == SHARED:
                    raise SettingError(
                        f"exchange.route is {name!r}, but shared memory cannot be used: {error}; accepted: auto, ring"
                    ) from None
                self.shared, reason = False, f"shared memory cannot be used: {error}"
        if not self.shared:
            own = self._within.within(f"keeper {next(self._numbers)}") if apart else group
            if owned.gathers and self._gathered is None:
                named = [one for plan in plans for one in plan.parameters]
                self._gathered = GatheredParameters(own.within("gathered"), named[::-1], owned.holdings)
            site = Site(own, None, errors, left_out, owned)
            plain, route, sums, copies = around_a_ring(plans, box, self._ring, site, self._gathered)
            if apart:
                route = added = AcrossReplicas(route, self._across, plans, owned)
        summary = f"shared memory, since {reason}" if self.shared else "a ring: each worker gets the sums of its share"

        def counted() -> tuple[Traffic, ...]:
            dense = () if self.shared else (_plain("ring", plain),)
            gathers = (_plain("gather", self._gathered),) if self._gathered else ()
            encoded = (one for coded in sums for one in coded.traffic)
            groups = (
                (Traffic("none", "torch", added.across_bytes, added.across_bytes, 2 * added.across_bytes),)
                if added
                else ()
            )
            return (*dense, *encoded, *gathers, *groups, _plain("broadcast", broadcasts))

        return OverlappedKeeper(route, broadcasts, errors, summary, overlaps=True, counted=counted, copies=copies)

    def _chosen(self, shapes: Sequence[BufferShape], *, odd: str) -> tuple[str, str]:
        """The route of what travels as it is, and why. odd: what cannot be added where all read it, if anything."""
        name, reason = self.links.route(self._wanted, shapes)
        if name == SHARED and odd:
            return fallback(), f"{odd} are sent also within one machine, and not added in its shared memory"
        return name, reason


def _odd(plans: Sequence[BucketPlan], partners: Partners | None = None) -> str:
    """Name what cannot be added in shared memory; empty: all can."""
    if partners is not None:
        return "parameters for partners"
    if any(not plan.representation.travels for plan in plans):
        return "gradients beside those of layers that are cut"
    return "encoded gradients" if any(plan.representation != EXACT for plan in plans) else ""


def _plain(route: str, what: Route | Broadcasts | GatheredParameters) -> Traffic:
    sent, received = what.sent_bytes, what.received_bytes
    return Traffic("none", route, sent, received, sent + received)
