"""The abilities of a strategy: what its exchange and its partition lack, and what its workers do together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from volary.errors import SettingError

if TYPE_CHECKING:
    from volary.session.fitting.needs import Need


class Keeping(Protocol):
    """The settings of a strategy that say who keeps what, and what is exchanged."""

    @property
    def workers(self) -> int: ...
    @property
    def consistency(self) -> Any: ...
    @property
    def exchange(self) -> Any: ...
    @property
    def partition(self) -> Any: ...


def fit(strategy: Keeping, needs: Iterable[Need]) -> None:
    """Raise SettingError for the first need that the strategy's exchange does not meet."""
    for need in needs:
        if why := lacks(strategy).get(need.trait):
            raise SettingError(f"{need.setting} is {need.value}, and {why}; accepted: {need.instead}")


def lacks(strategy: Keeping) -> dict[str, str]:
    """The abilities that the exchange lacks, with reasons; one worker that keeps all itself waits for nobody."""
    found = {**strategy.exchange.lacks, **strategy.partition.lacks}
    return {trait: why for trait, why in found.items() if trait == "versions" or _travels(strategy)}


def cut_over_servers(strategy: Keeping) -> bool:
    """Whether workers that hold replicas together exchange their parts with servers."""
    if not keeps_versions(strategy) or strategy.partition.chooses:
        return False
    mesh = strategy.partition.mesh(strategy.workers)
    return bool(mesh.shares == mesh.data != mesh.size)


def in_parts(strategy: Keeping) -> bool:
    """Whether workers hold parts of layers, so that each step is one of them together."""
    return strategy.workers > 1 and "steps together" in strategy.partition.needs


def updates_in_groups(strategy: Keeping) -> bool:
    """Whether workers with samples of their own take local steps together."""
    if strategy.partition.chooses or strategy.consistency.pushes.value != "difference":
        return False
    mesh = strategy.partition.mesh(strategy.workers)
    return bool(mesh.shares > mesh.data)


def _travels(strategy: Keeping) -> bool:
    return bool(strategy.workers > 1 or keeps_versions(strategy))


def keeps_versions(strategy: Keeping) -> bool:
    """Whether servers keep the parameters, and tell apart how old they are."""
    return "versions" not in strategy.exchange.lacks
