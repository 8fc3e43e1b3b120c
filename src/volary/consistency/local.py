"""Periodic averaging (Zinkevich et al., NIPS 2010; SparkNet, Moritz et al., ICLR 2016): workers agree now and then.

With a period of one step and plain SGD it equals `bsp`, to rounding. With an outer rule the mean of what workers have
changed is a step of that rule: DiLoCo (Douillard et al. 2023, arXiv:2311.08105), block momentum (Chen and Huo 2016).
With means after each step at first it is post-local SGD (Lin et al., ICLR 2020), with a quorum the rounds of Decoupled
DiLoCo (Douillard et al. 2026, arXiv:2604.21428).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Annotated, Any

from volary.consistency._base import Action, Consistency, Push
from volary.consistency.closing.quorum import QuorumCloser
from volary.errors import SettingError
from volary.session.reading.choice import Choice

if TYPE_CHECKING:
    from volary.server.roster.closing import Closer

GRACE = 0.2


@dataclass(frozen=True, kw_only=True)
class LocalSgd(Consistency):
    """Each worker updates its own copy, and every period all copies become their mean, weighted by samples."""

    period: int | None = field(default=None, metadata={"instead_of": "seconds"})  # steps between means (default 8)
    seconds: float | None = field(default=None, metadata={"instead_of": "period"})  # about so long, instead of period
    after: int = 0  # steps with a mean after each, before the first period (post-local)
    doubles: int | None = None  # steps after which the period doubles, again and again, up to `most`
    most: int | None = None  # the longest period that it doubles to
    fragments: int = 1  # of layers, of which one after the other is exchanged, each once a period
    alpha: float = 0.0  # the share of its own that a worker keeps of a fragment that was exchanged
    eager: bool = False  # a worker's own changes of a fragment count at once, those of others a turn later
    quorum: int | None = None  # workers with whose changes a mean is taken, over servers (default: all)
    grace: float | None = None  # how much longer it stays open, as a share of what a quorum takes (default 0.2)
    outer: Annotated[Any, Choice("volary.train.optimizers", user=True)] | None = None  # steps by the mean of changes
    threads: int = 1  # of each worker, which update its copy without locks, see `hogwild`

    def __post_init__(self) -> None:
        if self.period is not None and self.seconds is not None:
            raise SettingError("period and seconds are both given; accepted: one of them")
        if self.period is None and self.seconds is None:
            object.__setattr__(self, "period", 8)
        if self.period is not None and self.period < 1:
            raise SettingError(f"period is {self.period}; accepted: a whole number of steps, 1 or more")
        if self.seconds is not None and self.seconds <= 0:
            raise SettingError(f"seconds is {self.seconds:g}; accepted: above 0")
        self._check_growth()
        self._check_fragments()
        self._check_quorum()
        if not getattr(self.outer, "elementwise", True):  # a class of the user's own is looked at when it is loaded
            name = type(self.outer).__module__.rpartition(".")[2]
            raise SettingError(
                f"outer is {name}, which needs whole parameters, and servers keep parts of them; accepted: one that "
                "updates each value on its own, as sgd, adam or adagrad"
            )

    @property
    def needs_server(self) -> bool:
        """If not all workers take part in each mean."""
        return self.quorum is not None

    elastic = steals = in_turn = needs_server

    @property
    def deciding(self) -> str:
        """Servers take means with a quorum; workers exchange fragments."""
        return "quorum" if self.quorum is not None else "fragments" if self.fragments > 1 else ""

    def closer(self, workers: int, first: int = 0, samples: int = 0) -> Closer:
        """A mean of all, or of a quorum. Raises SettingError if that is above `workers`."""
        if self.quorum is None:
            return super().closer(workers, first, samples)
        if self.quorum > workers:
            raise SettingError(f"quorum is {self.quorum}; accepted: 1 to {workers}, the number of workers")
        return QuorumCloser(first, self.quorum, GRACE if self.grace is None else self.grace)

    @property
    def equal(self) -> bool:
        """Not if fragments are exchanged in turn: all others are a worker's own then."""
        return self.fragments == 1

    def at(self, number: int, step_s: float, begun: int = 0) -> Action:
        """An update of its own; after the last step of a period, what it has changed leaves."""
        steps = self._steps(step_s, begun) / self.fragments
        return Action(updates=True, push=Push.DIFFERENCE if number + 1 >= steps else Push.NOTHING)

    def _steps(self, step_s: float, begun: int) -> float:
        if begun < self.after:
            return 1
        if self.period is None:
            # the first period shows how long steps take
            return self.seconds / step_s - 0.5 if self.seconds is not None and step_s else 1
        if self.doubles is None or self.most is None:
            return self.period
        return min(self.most, self.period << min((begun - self.after) // self.doubles, self.most.bit_length()))

    def _check_growth(self) -> None:
        if self.after < 0:
            raise SettingError(f"after is {self.after}; accepted: a whole number of steps, 0 or more")
        if self.doubles is None and self.most is None:
            return
        if self.period is None:
            raise SettingError("seconds is given, and a period in seconds does not double; accepted: period")
        if self.doubles is None or self.doubles < 1:
            raise SettingError(f"doubles is {_shown(self.doubles)}; accepted beside most: a number of steps, 1 or more")
        if self.most is None or self.most < self.period:
            raise SettingError(
                f"most is {_shown(self.most)}, and the period doubles every {self.doubles} steps, without an end; "
                f"accepted: the longest period that it doubles to, {self.period} or more steps"
            )

    def _check_quorum(self) -> None:
        if self.quorum is None:
            if self.grace is not None:
                raise SettingError(f"grace is {self.grace:g}, which is of a quorum; accepted beside it: quorum")
            return
        if self.quorum < 1:
            raise SettingError(f"quorum is {self.quorum}; accepted: 1 up to the number of workers")
        if self.grace is not None and not 0 <= self.grace < inf:
            raise SettingError(f"grace is {self.grace:g}; accepted: 0 or more, as a share of what a quorum takes")
        if self.fragments > 1:
            raise SettingError(
                f"quorum is {self.quorum}, which is of servers, and fragments is {self.fragments}, of all-reduce; "
                "accepted: one of the two"
            )

    def _check_fragments(self) -> None:
        if self.fragments < 1:
            raise SettingError(f"fragments is {self.fragments}; accepted: 1 up to the number of layers")
        if self.fragments == 1:
            if self.eager:
                raise SettingError("eager is true, which is of fragments; accepted: false, or 2 fragments or more")
            if self.alpha:
                raise SettingError(
                    f"alpha is {self.alpha:g}, which is of fragments; accepted: 0, or 2 fragments or more"
                )
            return
        if self.period is None or self.period % self.fragments or self.after or self.doubles is not None:
            raise SettingError(
                f"fragments is {self.fragments}, which are exchanged one after the other in a period; accepted: with a "
                f"period of a multiple of {self.fragments} steps that stays, without after, doubles and seconds"
            )
        if self.eager and self.alpha:
            raise SettingError(
                f"alpha is {self.alpha:g}, and with eager a worker takes a fragment over before anything of its own "
                "has moved on; accepted: 0"
            )
        if not 0 <= self.alpha < 1:
            raise SettingError(f"alpha is {self.alpha:g}; accepted: from 0 to below 1")


def _shown(value: int | None) -> str:
    return "not given" if value is None else str(value)


CONSISTENCY = LocalSgd
