"""Local updates whose exchange goes fragment by fragment: Streaming DiLoCo (Douillard et al. 2025, arXiv:2501.18512).

A period has as many parts as there are fragments. After each part one fragment's changes leave, and the outer rule
makes of their mean what all workers have of it. A part behind, they travel while the next part is computed. Then each
worker takes that over, but for a share `alpha` of its own. So what is on the wire at once is a fragment, and not the
network. Eager, each takes over at once what it takes that to be, see `eager_guess`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from volary.exchange.choice.dealt_layers import fragments_of
from volary.naming import trained_parameters
from volary.run.database.traffic import Traffic, added
from volary.train.agreement.first_state import share_now
from volary.train.agreement.lent import lent, lent_mean
from volary.train.agreement.votes import Vote
from volary.train.replica import Voting
from volary.train.state.rank_state import PARAMETERS
from volary.train.strategies.averaging.fragment import Fragment
from volary.train.strategies.averaging.rank_parameters import RankParameters

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.groups.group import Group
    from volary.exchange.compression.residual import ResidualState
    from volary.exchange.representations._base import Representation
    from volary.server.update_rule import UpdateRule
    from volary.train.agreement.first_state import DeferredTensors
    from volary.train.agreement.votes import Agreed
    from volary.train.state.stateful import RankState
    from volary.train.strategies.contribution import StrategySettings
    from volary.train.update.whole import WholeUpdate


class FragmentedSteps(Voting):
    """See `volary.train.replica.Voting`. outer: of the agreed changes.

    Making one is a collective call. A checkpoint has what all workers have of each fragment, and each worker's own
    parameters (see `RankState`).
    """

    def __init__(
        self,
        settings: StrategySettings,
        representations: Mapping[str, Representation],
        group: Group,
        update: WholeUpdate,
        outer: UpdateRule,
    ) -> None:
        consistency = settings.strategy.consistency
        self._alpha, self._behind = consistency.alpha, settings.comm_setup.behind
        trained = trained_parameters(settings.module)
        self._trained: Mapping[str, Tensor] = {name: one.detach() for name, one in trained.items()}
        numbers = {name: number for number, name in enumerate(trained)}
        self._fragments = [
            Fragment(settings, representations, group.within(f"fragment {number}"), names, outer, numbers)
            for number, names in enumerate(fragments_of(settings.module, consistency.fragments))
        ]
        settings.state.follow(_Residuals(self._fragments))
        self._module, self._group, self._recorder, self._update = settings.module, group, settings.recorder, update
        self._keeper = self._fragments[0].contribution.keeper
        self._next = 0  # the fragment that leaves next
        self._due: Fragment | None = None  # that workers have yet to take over
        self._given: Fragment | None = None  # that this worker has given its part of, and nothing has come of it yet
        self._vote = Vote(0.0, busy=True, ending=False)
        self._own = RankParameters(group.size)
        self._eager, self._outer = consistency.eager, settings.state.outer
        self._guessed: Mapping[str, Any] | None = None  # of a checkpoint, until it is restored

    def record(self, update: str) -> None:
        """Record how fragments travel, and when parameters are updated."""
        self._fragments[0].contribution.record(update)

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        return added(*(one.traffic for one in self._fragments))

    def start(self, late: DeferredTensors) -> None:
        """Start the exchange, and give all ranks what rank 0 has, or each what it had when a checkpoint was saved."""
        share_now(list(self._module.parameters()), late, self._group, self._keeper.broadcast)
        for one in self._fragments:
            one.start(late)
        self._restore_own()

    def update(self) -> None:
        """Update this worker's parameters with its own gradients."""
        self._update.apply(self._recorder.step)

    def vote(self, vote: Vote) -> None:
        self._vote = vote

    def agree(self) -> Agreed:
        """Take over the fragment before, if it is due; let the next leave, and wait for what all say of the step."""
        self._recorder.enter("exchange")
        self._take_over()
        self._given = self._fragments[self._next]
        self._given.vote(self._vote)
        agreed = self._given.agree()
        if not self._behind:
            self._given.contribution.keeper.settle()  # before anything counts, as of `LocalSteps`
        return agreed

    def apply(self, scale: float = 1.0) -> None:
        """Let the fragment's sums count: now, or a part of the period behind."""
        self._due, self._given = self._fragments[self._next], None
        self._due.apply(scale)
        self._pass_turn()
        if self._eager:
            self._due.mix(0.0)
            self._due = None
        if not self._behind:
            with self._recorder.waiting():
                self._take_over()

    def leave_out(self) -> None:
        """Let the fragment's turn pass, on all workers; what a worker has updated by itself stays."""
        self._recorder.enter("exchange")
        self._fragments[self._next].leave_out()
        self._given = None
        self._pass_turn()
        self._update.forget()

    def settle(self) -> None:
        """Wait for the sums that are under way; when workers take them over stays as it is."""
        with self._recorder.waiting():
            for one in self._fragments:
                one.settle()

    @property
    def own(self) -> Mapping[str, RankState]:
        return {PARAMETERS: self}

    @contextmanager
    def consensus(self) -> Iterator[None]:
        """Lend the network what all workers have; eager, the mean of what each takes that to be."""
        self.settle()
        with lent(self._trained, self.alike) as self._own.values, self._mean():
            yield
        self._own.values = {}

    @torch.no_grad()
    def take_back(self, own: Mapping[str, Any]) -> None:
        """Let the network have what all workers have of each fragment."""
        for name, values in self.alike.items():
            self._trained[name].copy_(values)

    def rank_state(self) -> dict[str, Any]:
        """This worker's parameters, and whose turn is next."""
        return {
            **self._own.state(self._trained),
            "next": self._next,
            "due": self._due is not None,
            "given": self._given is not None,
            **({"guessed": self._guesses()} if self._eager else {}),
        }

    def restore_rank(self, states: Sequence[dict[str, Any]]) -> None:
        """Begin with this worker's own; with other numbers of workers or fragments all begin with what all have."""
        state = self._own.restore([one for one in states[:1] if one.get("next", 0) < len(self._fragments)])
        if state:
            self._next = state.get("next", 0)
            self._due = self._fragments[self._next - 1] if state.get("due") else None
            self._guessed = state.get("guessed") if self._eager else None
            if state.get("given"):  # what all have is the newer by that fragment
                self._given = self._fragments[self._next]
                self._pass_turn()

    def take_own(self) -> None:
        """The network has what all have, as a checkpoint has it; this worker's parameters become its own again."""
        for one in self._fragments:
            one.contribution.pushed.begin()
        self._restore_own()

    def close(self) -> None:
        """End the exchange and let go of the network."""
        for one in self._fragments:
            one.close()

    def _mean(self) -> AbstractContextManager[object]:
        """Lend the network the mean of what all workers' have now, where these differ."""
        return lent_mean(self._trained, 1 / self._group.size, self._group) if self._eager else nullcontext()

    @property
    def alike(self) -> Mapping[str, Tensor]:
        return {name: one for fragment in self._fragments for name, one in fragment.since.items()}

    def _guesses(self) -> dict[str, Any]:
        """This worker's own estimate of the values that all have, and its outer rule's state."""
        others = {name: one for each in self._fragments if each.guess for name, one in each.guess.state().items()}
        return {"since": self.alike, "others": others, "outer": self._outer.state()}

    @torch.no_grad()
    def _restore_guesses(self) -> None:
        if self._guessed is None:
            return
        self._outer.restore(self._guessed["outer"])
        for name, one in self.alike.items():
            one.copy_(self._guessed["since"][name])
        for fragment in self._fragments:
            if fragment.guess is not None:
                fragment.guess.restore(self._guessed["others"])
        self._guessed = None

    def _restore_own(self) -> None:
        """Give this worker back what was restored, and let it take over what others have taken over meanwhile."""
        self._restore_guesses()
        self._own.give_back(self._trained)
        if self._given is not None:
            self._given.mix(self._alpha)
            self._given = None

    def _pass_turn(self) -> None:
        self._next = (self._next + 1) % len(self._fragments)

    def _take_over(self) -> None:
        if self._due is not None:
            self._due.settle()
            self._due.mix(self._alpha)
            self._due = None


class _Residuals:
    """Keeps what the codecs of all fragments have left out, each of its own parameters; see `ErrorFeedback`."""

    def __init__(self, fragments: Sequence[Fragment]) -> None:
        self._of = [(set(one.since), one.contribution.keeper) for one in fragments]

    def state(self, *, copied: bool = True) -> ResidualState:
        return {name: kinds for _, keeper in self._of for name, kinds in keeper.state(copied=copied).items()}

    def restore(self, states: Sequence[ResidualState]) -> None:
        for names, keeper in self._of:
            keeper.restore([{name: one for name, one in state.items() if name in names} for state in states])
