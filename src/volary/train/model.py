"""A session's network, data and update rule, as every process of its run makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from volary.data.data_names import DataNames, agreeing
from volary.data.datasets.stream import Stream
from volary.errors import SettingError
from volary.errors.raised import sentences_of
from volary.exchange.choice.dealt_layers import fragments_of
from volary.network import build, build_loss
from volary.network.execution.channels_last import channels_last
from volary.network.execution.recompute import recompute
from volary.network.flow import Flow
from volary.network.operations.carried_state import carried_states
from volary.session.values.reference import UserObject, name_of
from volary.train.data.fit import fit_to_data
from volary.train.data.mixed_batch import BatchMixing, mixing_of
from volary.train.data.opening import open_data
from volary.train.factors.by_name import FactorsByName
from volary.train.freezing import NOTHING_FROZEN, Frozen, freeze
from volary.train.trying.certain_loss import refuse_uncertain_loss
from volary.train.update.adaptive_clip import clip_by_weights
from volary.train.update.uncompiled import spare_the_compiler

if TYPE_CHECKING:
    from torch import Tensor

    from volary.data.samples import Samples
    from volary.network.criterion import Criterion
    from volary.session.spec import Session
    from volary.train.update.precision import Precision
    from volary.train.update.update import Update


Build = Callable[[list[torch.Tensor]], torch.optim.Optimizer]


@dataclass(frozen=True)
class Model:
    """A session's network on its device, and what its data is like. classes: 0 if nobody says how many.

    factors: of its parameters' learning rates and decays. frozen: what of it is not trained, or not yet.
    """

    module: nn.Module
    criterion: Criterion
    samples: Samples | Stream
    classes: int
    session: Session
    factors: FactorsByName
    frozen: Frozen = NOTHING_FROZEN

    @cached_property
    def validation(self) -> Samples | Stream:
        """The data to evaluate on, opened when it is first asked for. Raises DataError if there is none."""
        names = DataNames.of(self.samples)
        opened = open_data(self.session, "test", self.criterion)
        return agreeing(opened, names, "the validation data", "the training data")

    @property
    def in_streams(self) -> bool:
        """Whether samples come in streams: the network keeps a state from batch to batch."""
        return bool(carried_states(self.module))

    @cached_property
    def mixing(self) -> BatchMixing | None:
        """The object that mixes samples of batches, if one does. Raises SettingError if they cannot be mixed."""
        return mixing_of(self.session, self.samples, self.criterion, self.classes)

    @cached_property
    def positions(self) -> int:
        """Values of a sample's target, if all have as many; at least 1."""
        nothing = torch.empty(0, dtype=torch.int64)
        _, targets = self.samples.first() if isinstance(self.samples, Stream) else self.samples.fetch(nothing)
        return max(1, prod(targets.shape[1:]))

    def some_inputs(self, parts: int) -> Tensor:
        """Inputs (samples, ...) of as many samples as one of so many parts of a batch has, or of all; at least one."""
        count = max(1, self.session.data.batch_size // parts)
        if isinstance(self.samples, Stream):
            inputs = self.samples.first()[0][:count]
        else:
            inputs = self.samples.fetch(torch.arange(min(count, len(self.samples))))[0]
        return inputs.to(next(self.module.parameters()).device)

    def flow(self, name: str, absent: Callable[[], torch.Tensor] | None = None) -> Flow:
        """A flow of this network: what turns inputs and targets into a loss. absent: see `Flow`."""
        return Flow(self.module, self.criterion, name, self.positions, absent)

    def facts(self) -> dict[str, Any]:
        """The facts about the network that a run records, by name."""
        return {
            "metric": self.criterion.metric,
            "higher_is_better": self.criterion.higher_is_better,
            "parameters": sum(p.numel() for p in self.module.parameters()),
            "input_shape": ",".join(map(str, self.samples.input_shape)),
            "input_dtype": str(self.samples.input_dtype).removeprefix("torch."),
            "classes": self.classes,
            "data_names": DataNames.of(self.samples).text(),
        }


@dataclass(frozen=True)
class TrainedNetwork:
    """The network as a worker trains it: the flow, where and how precisely it is computed, and what updates its
    parameters.

    mixing: what mixes the samples of batches before; None: nothing. averages: an average of its weights is kept.
    """

    flow: Flow
    device: torch.device
    precision: Precision
    update: Update
    mixing: BatchMixing | None = None
    averages: bool = False


def build_model(session: Session, device: torch.device, begun_with: str = "") -> Model:
    """The session's network, fresh. Raises BadInput if the data cannot be opened, or the network or loss not made.

    begun_with: the fact `data_names` of a run that is resumed or evaluated; the data gets its numbers of classes.
    """
    criterion = build_criterion(session)
    opened, known = open_data(session, "train", criterion), DataNames.read(begun_with)
    samples = agreeing(opened, known, "data.source", "the data that the run was begun with")
    classes = max(_classes(session.network, samples), known.count)
    module = build_network(session, samples.input_shape, classes).to(device)
    criterion.suit(classes)
    fit_to_data(session, module, criterion, samples)
    factors = FactorsByName.of(session, module)
    recompute(module, session.train.recompute)
    if session.train.channels_last:
        channels_last(module)
    if of_vectors(session.optimizer) and not isinstance(samples, Stream):
        refuse_uncertain_loss(session, module, len(samples))
    frozen = freeze(module, session.train.freeze)
    fragments_of(module, session.strategy.consistency.among(session.strategy.workers).fragments)  # as there are layers
    return Model(module, criterion, samples, classes, session, factors, frozen)


def build_network(session: Session, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The session's network, fresh, for such inputs. Raises SettingError if it cannot be made."""
    network = session.network
    with sentences_of(f"network {name_of(network)!r}", SettingError):
        return build(_loaded(network), input_shape, classes, **_own(network))


def build_criterion(session: Session) -> Criterion:
    """The session's loss. Raises SettingError if it cannot be made."""
    with sentences_of(f"loss {name_of(session.loss)!r}", SettingError):
        return build_loss(_loaded(session.loss), **_own(session.loss))


def update_rule(session: Session, factors: FactorsByName) -> tuple[Callable[[Sequence[str]], Build], bool]:
    """Return what makes the session's optimiser of parameters, first given their names and then the tensors, and
    whether its rule is elementwise. factors: of the whole network, of which these may be a part.

    Raises SettingError, when it is called, if the user's class makes no optimiser, and for factors that do not fit it.
    """
    spare_the_compiler()
    build, elementwise = plain_rule(session.optimizer)
    most = session.train.clip_adaptive

    def building(names: Sequence[str]) -> Build:
        if most is None:
            return lambda tensors: factors.apply(build(tensors), names, tensors)
        return lambda tensors: clip_by_weights(factors.apply(build(tensors), names, tensors), most)

    return building, elementwise and most is None


def plain_rule(settings: Any) -> tuple[Build, bool]:
    """Return what makes an optimiser of tensors as a session's setting says, and whether its rule is elementwise.

    Raises SettingError, when it is called, if the user's class makes no optimiser.
    """
    if not isinstance(settings, UserObject):
        return settings.build, settings.elementwise
    kind = settings.load()

    def build(tensors: list[torch.Tensor]) -> torch.optim.Optimizer:
        with sentences_of(f"optimizer {settings.name!r}", SettingError):
            made = kind(tensors, **settings.arguments)
        if not isinstance(made, torch.optim.Optimizer):
            raise SettingError(
                f"optimizer {settings.reference!r} gives a {type(made).__name__}; accepted: a torch Optimizer"
            )
        return made

    return build, bool(getattr(kind, "elementwise", False))


def of_vectors(optimizer: Any) -> bool:
    """Whether servers have an optimiser as sums of vectors and their products: a session's settings say so."""
    return bool(getattr(optimizer, "by_vectors", False))


def _classes(network: Any, samples: Samples | Stream) -> int:
    """How many classes there are: the data says, or else the network's own setting; 0 if neither does."""
    return int(samples.classes or getattr(network, "classes", None) or 0)


def _loaded(setting: Any) -> Any:
    return setting.load() if isinstance(setting, UserObject) else setting


def _own(setting: Any) -> dict[str, Any]:
    """Name and arguments of a user's own object; nothing for a plug-in."""
    if not isinstance(setting, UserObject):
        return {}
    return {"name": setting.name, "arguments": setting.arguments}
