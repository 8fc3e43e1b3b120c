"""A model of a user's own loop as it was distributed last: what it holds, its strategy, and what watches it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.consistency._base import Push
from volary.exchange.gradients.accumulation_hooks import before_bucket
from volary.naming import trained_parameters
from volary.train.agreement.first_state import DeferredTensors
from volary.train.own.early.early_steps import EarlySteps
from volary.train.own.early.early_update import EarlyUpdate
from volary.train.own.gradients.held_gradients import HeldGradients
from volary.train.own.model.contents import Contents
from volary.train.own.model.first_forward import choose_with_first_forward
from volary.train.own.parts.joining import joined
from volary.train.own.rank_copy import RankCopy
from volary.train.state.seeds import kept_generators
from volary.train.strategies.adapting import Adapting
from volary.train.strategies.step_settings import StepSettings

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from volary.comm.groups.group import Group
    from volary.train.own.model.loop_run import LoopRun
    from volary.train.own.parts.cut_model import CutModel
    from volary.train.replica import Voting
    from volary.train.strategies.strategy_state import StrategyState
    from volary.train.worker.rank_part import RankPart


@dataclass(frozen=True)
class ModelCallbacks:
    """The functions that a distributed model calls.

    reached: backward is about to put a parameter's gradient into its bucket. used: the user's code uses a gradient that
    buckets hold. weight: the factor of this worker's gradients. settle: waits for all updates. why_own: see `RankCopy`.
    """

    reached: Callable[[Tensor], None]
    used: Callable[[], None]
    weight: Callable[[], float]
    settle: Callable[[], None]
    why_own: Callable[[], str]


@dataclass(frozen=True)
class Distribution:
    """From one `distribute` to the next. early: if updates are made as sums arrive. own_copy: if parameters differ.

    cut: if workers hold parts of the model.
    """

    contents: Contents
    rank: RankPart
    strategy: Voting
    held: HeldGradients
    early: EarlySteps | None
    own_copy: RankCopy | None
    cut: CutModel | None
    hooks: ExitStack

    def close(self) -> None:
        """Remove the hooks from the user's model."""
        self.hooks.close()
        if self.own_copy is not None:
            self.own_copy.close()
        self.strategy.close()
        if self.early is not None:
            self.early.close()
        if self.cut is not None:
            self.cut.close()


def distribute(
    model: nn.Module,
    run: LoopRun,
    group: Group,
    beside: Group,
    passes: int,
    state: StrategyState,
    early: Optimizer | None,
    callbacks: ModelCallbacks,
) -> Distribution:
    """Have all workers of `group` begin with the same model, as it is now on the first. A collective call.

    beside, passes, state, early: as of `LoopModel`. Raises what `build_strategy` raises, and SettingError for a model
    that cannot be cut as settings say.
    """
    settings, recorder = run.settings, run.recorder
    recorder.enter("exchange")
    rank, cut = joined(model, run, group, callbacks.weight, early=early is not None)
    contents, part, update = Contents(model), rank.part, None
    if early is not None and group.size > 1:
        holdings, sparse = part.holdings, bool(contents.sparse)
        shared_with, keeps = beside if holdings.in_shares else None, bool(holdings.owned)
        trained = trained_parameters(model)
        update = EarlyUpdate(early, trained, callbacks.settle, sparse=sparse, shared_with=shared_with, keeps=keeps)
    held = HeldGradients(contents.trained, callbacks.used)
    with ExitStack() as hooks:
        for one in contents.trained:
            hooks.callback(before_bucket(one, callbacks.reached).remove)
        steps = StepSettings(passes=passes, weight=callbacks.weight, samples=lambda: run.share.seen)
        with kept_generators():
            strategy = rank.replica(settings, recorder, None, state, steps, update)
            strategy.start(DeferredTensors(new=not run.members.equal))
        behind = getattr(settings.exchange, "behind", False)
        early_steps = EarlySteps(model, update, strategy, behind=behind) if update else None
        differs = group.size > 1 and settings.consistency.pushes is not Push.GRADIENT
        own_copy = RankCopy(model, callbacks.why_own, recorder) if differs else None
        if isinstance(strategy, Adapting) and settings.codec.chooses and not state.representations:
            hooks.callback(choose_with_first_forward(model, strategy, passes, recorder).remove)
        recorder.enter("between steps")
        return Distribution(contents, rank, strategy, held, early_steps, own_copy, cut, hooks.pop_all())
