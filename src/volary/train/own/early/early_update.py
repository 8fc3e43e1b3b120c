"""A user's optimiser whose updates happen as sums arrive, under the next forward: its rule and state, by slices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from volary.errors import BadInput, SettingError
from volary.sharding.ranges import Range
from volary.train.agreement.gathered_state import gathered
from volary.train.served.server.loop_optimizer import by_group, groups_among, is_elementwise, plain
from volary.train.state.optimizer_state import OptimizerState
from volary.train.update.by_slices import by_number
from volary.train.update.held_parameters import ids_of
from volary.train.update.optimizer_rule import OptimizerRule, SliceOptimizer, state_as

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from volary.comm.groups.group import Group
    from volary.server.update_rule import SliceUpdate


class EarlyUpdate:
    """See `volary.train.update.by_slices.UpdateBySlices`; where that can be, `optimizer.step()` itself finds nothing.

    It says to its slices how they are updated, too: see `volary.train.update.optimizer_rule.Updating`.

    trained: of the model, by name. settle: waits for all updates. The optimiser's settings, learning rates too, are
    followed at each step. Its state is with the slices, and in `optimizer.state_dict()`. sparse: the model has layers
    whose gradients hold a few rows only. shared_with: the workers that update a share each, this
    one included; None: each updates all. keeps: of those that update the same share, this one shows its state.
    """

    elementwise, clip_value = True, None

    def __init__(
        self,
        optimizer: Optimizer,
        trained: Mapping[str, Tensor],
        settle: Callable[[], None],
        *,
        sparse: bool = False,
        shared_with: Group | None = None,
        keeps: bool = True,
    ) -> None:
        self._shared_with, self._keeps = shared_with, keeps
        self._sparse = sparse
        self.optimizer, self._trained, self._settle = optimizer, trained, settle
        self._rule: OptimizerRule | None = None  # once sums are applied as they arrive
        self._layout = self._laid_out()
        group_of = {one: number for number, group in enumerate(self._layout) for one in group}
        self._group_of = {name: group_of[id(one)] for name, one in trained.items() if id(one) in group_of}
        self._known: list[dict[str, Any]] = []  # settings that slices have
        self._hooks = [
            optimizer.register_state_dict_pre_hook(lambda _: self.bring()),
            optimizer.register_state_dict_post_hook(lambda *_: self._drop()),
            optimizer.register_load_state_dict_post_hook(lambda _: self._take()),
        ]

    @property
    def why_whole(self) -> str:
        if not is_elementwise(self.optimizer):
            return f"nothing says that {type(self.optimizer).__name__} updates each value on its own"
        if self._sparse:
            return "it has layers with sparse gradients, which are made of all values"
        missing = [name for name in self._trained if name not in self._group_of]
        return f"{missing[0]} is in no group of the optimiser" if missing else ""

    @property
    def why_undivided(self) -> str:
        return self.why_whole

    @property
    def most_norm(self) -> float | None:
        """None, as the loop clips by itself."""
        return None

    @property
    def updates_on_arrival(self) -> bool:
        """Whether sums are applied as they arrive."""
        return self._rule is not None

    def divide(self, slices: Sequence[Mapping[Range, Tensor]]) -> OptimizerRule:
        self._rule = OptimizerRule(by_number(slices), self, self._state())
        self._known = []
        self._drop()
        return self._rule

    def prepare(self, step: int) -> None:
        """`follow` does, once the user's code has set what it wants."""

    def follow(self) -> None:
        """Take over the optimiser's settings as they are now. Raises SettingError if it has other parameters."""
        if self._laid_out() != self._layout:
            raise SettingError(
                f"{type(self.optimizer).__name__} has other parameters or groups than before; accepted with "
                "early_update: worker.distribute(model, optimizer) again after such a change"
            )
        settings = [plain(group) for group in self.optimizer.param_groups]
        if settings == self._known:
            return
        self._known = settings
        for one in self._optimizers:
            numbers = groups_among(self._group_of, one.parts)
            for group, number in zip(one.optimizer.param_groups, numbers, strict=True):
                group.update(settings[number])
            one.rates = [float(settings[number]["lr"]) for number in numbers]

    def build(self, names: Sequence[str]) -> Callable[[list[Tensor]], Optimizer]:
        """Return a function that makes an optimiser of these parameters, with the groups that they are in."""

        def made(tensors: list[Tensor]) -> Optimizer:
            groups = by_group(self._group_of, names, tensors).items()
            kind: Any = type(self.optimizer)
            optimizer: Optimizer = kind([{**self.optimizer.param_groups[n], "params": own} for n, own in groups])
            return optimizer

        return made

    def step(self, one: SliceOptimizer, update: SliceUpdate) -> None:
        """Step with the rates that `follow` has taken over."""
        one.step(1.0, _quietly)

    def close(self) -> None:
        """Give the optimiser its state back, where that is all here; all updates are done."""
        for hook in self._hooks:
            hook.remove()
        if self._shared_with is None:
            self._bring_state(self._state())
        self._rule = None

    @property
    def _optimizers(self) -> Sequence[SliceOptimizer]:
        return list(self._rule.optimizers.values()) if self._rule else []

    def _laid_out(self) -> list[list[int]]:
        return [[id(one) for one in group["params"]] for group in self.optimizer.param_groups]

    def _state(self) -> OptimizerState:
        if self._rule:
            return OptimizerState(part for one in self._optimizers for part in one.state())
        whole = {Range(name, 0, one.numel()): one for name, one in self._trained.items()}
        own = SliceOptimizer(whole, lambda _: self.optimizer, elementwise=True, clip_value=None)
        return OptimizerState(own.state())

    def bring(self) -> None:
        """Give the optimiser the state that it has by now. A collective call where workers keep shares of it."""
        if self._rule:
            self._settle()
            state = self._state()
            if self._shared_with is not None:
                state = gathered(state if self._keeps else OptimizerState(), self._shared_with)
            self._bring_state(state)

    def _bring_state(self, state: OptimizerState) -> None:
        for name, parameter in self._trained.items():
            part = state.of(Range(name, 0, parameter.numel()))
            if part.each or part.whole:
                self.optimizer.state[parameter] = state_as(part, parameter.detach())

    def _drop(self) -> None:
        if self._rule:
            for parameter in self._trained.values():
                self.optimizer.state.pop(parameter, None)

    def _take(self) -> None:
        if self._rule:
            self._settle()
            rule, self._rule = self._rule, None
            state = self._state()  # as it was loaded
            self._rule, self._known = rule, []
            for number in rule.optimizers:
                rule.restore(number, state)
            self._drop()


def _quietly(optimizer: Optimizer) -> None:
    """A step of a slice, of which hooks on optimisers hear nothing."""
    type(optimizer).step.__wrapped__(optimizer)  # type: ignore[attr-defined]  # of functools.wraps


def optimizer_of(model: nn.Module, optimizers: Sequence[Optimizer]) -> Optimizer:
    """The one that updates it. Raises BadInput if there is none, or are several."""
    own = {id(one) for one in model.parameters()}
    found = [one for one in optimizers if ids_of(one) & own]
    if len(found) != 1:
        raise BadInput(
            f"worker.distribute: early_update is true, and {len(found)} of the given optimisers update the model; "
            "accepted: one that does, in the same call"
        )
    return found[0]
