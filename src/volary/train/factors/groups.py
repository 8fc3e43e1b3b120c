"""Groups of a model's parameters for a torch optimiser in a user's own loop: rates and decays by name and by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from volary.errors import BadInput, SettingError
from volary.naming import named_parameters
from volary.session.checks import require
from volary.session.reading.settle import settle
from volary.session.train_section import ParameterFactors
from volary.train.factors.by_name import FactorsByName

if TYPE_CHECKING:
    from torch import nn


def parameter_groups(
    model: nn.Module,
    *,
    lr: float,
    weight_decay: float | None = None,
    layer_decay: float = 1.0,
    parameters: Sequence[Mapping[str, Any] | ParameterFactors] = (),
) -> list[dict[str, Any]]:
    """The parameters of `model` in groups, which optimisers of `torch.optim` take in the place of parameters.

    lr, weight_decay: of a parameter whose factors are 1; weight_decay None: the optimiser's own, of all. layer_decay:
    factor of the rate from each layer to the one before it. parameters: factors by name, as {"match": "*.bias", "lr":
    2, "weight_decay": 0}, of which the first that fits counts. Both are as in `train` of a session (docs/training.md).
    A group for each pair of factors, in the order of their first parameters. Raises BadInput for what is no module,
    and SettingError for what is no setting, a pattern that fits no parameter, or a factor of a decay that is missing.
    """
    if not hasattr(model, "named_parameters"):
        raise BadInput(f"volary.parameter_groups was given a {type(model).__name__}; accepted: a torch module")
    given: Any = parameters  # of which settings become typed
    try:
        settings = ParameterGroups(lr=lr, weight_decay=weight_decay, layer_decay=layer_decay, parameters=given)
        factors = FactorsByName.among(model, settings.parameters, {}, settings.layer_decay)
    except SettingError as error:
        raise SettingError(f"volary.parameter_groups: {error}") from None
    groups: dict[tuple[float, float], dict[str, Any]] = {}
    for name, parameter in named_parameters(model):
        rate, decay = factors.of_name(name)
        if settings.weight_decay is None and decay != 1:
            raise SettingError(
                f"volary.parameter_groups: the weight_decay of {name} is multiplied by {decay:g}, and none is given; "
                "accepted: weight_decay=0.01, or any other"
            )
        decays = {} if settings.weight_decay is None else {"weight_decay": settings.weight_decay * decay}
        group = groups.setdefault((rate, decay), {"params": [], "lr": settings.lr * rate, **decays})
        group["params"].append(parameter)
    return list(groups.values())


@dataclass(frozen=True, kw_only=True)
class ParameterGroups:
    """The arguments of `parameter_groups`, read as a session's settings are."""

    lr: float
    weight_decay: float | None
    layer_decay: float
    parameters: tuple[ParameterFactors, ...]

    def __post_init__(self) -> None:
        settle(self)
        require(self.lr >= 0, "lr", self.lr, "0 or more")
        require(self.weight_decay is None or self.weight_decay >= 0, "weight_decay", self.weight_decay, "0 or more")
        require(0 < self.layer_decay <= 1, "layer_decay", self.layer_decay, "above 0, up to 1")
