"""Factors of the learning rate and of the weight decay, by parameter: groups of an optimiser's parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.naming import named_parameters
from volary.session.reading.problems import nearest
from volary.train.factors.by_layer import factors_by_layer

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from volary.session.spec import Session
    from volary.session.train_section import ParameterFactors

VECTORS = "vectors"  # in place of a pattern: what has at most one dimension, as biases and the parameters of norms
LR_FACTOR = "lr_factor"  # in a group of parameters: what the learning rate is multiplied by when a step is taken


@dataclass(frozen=True)
class FactorsByName:
    """The factors of the optimiser's settings for each parameter.

    patterns: of the session, of which the first that fits a name counts. of_network: those that the network asks for.
    vectors: the names of the parameters that have at most one dimension. of_layers: by name, what the learning rate is
    multiplied by beside all that, as `factors_by_layer` says; empty: nothing.
    """

    patterns: tuple[ParameterFactors, ...]
    of_network: Mapping[str, tuple[float, float]]
    vectors: frozenset[str]
    of_layers: Mapping[str, float]

    @classmethod
    def of(cls, session: Session, module: nn.Module) -> FactorsByName:
        """The factors that a session sets, and those of its network, which is `module`.

        Raises SettingError for a pattern that fits none of its parameters, and as `factors_by_layer`.
        """
        of_network: Mapping[str, tuple[float, float]] = getattr(session.network, "factors", dict)()
        try:
            return cls.among(module, session.train.parameters, of_network, session.train.layer_decay)
        except SettingError as error:
            raise SettingError(f"train.{error}") from None

    @classmethod
    def among(
        cls,
        module: nn.Module,
        patterns: tuple[ParameterFactors, ...],
        of_network: Mapping[str, tuple[float, float]],
        layer_decay: float,
    ) -> FactorsByName:
        """The factors of a module's parameters. Raises SettingError as `of`, by the settings' own names."""
        named = dict(named_parameters(module))
        vectors = frozenset(name for name, one in named.items() if one.ndim < 2)
        found = cls(patterns, of_network, vectors, factors_by_layer(module, layer_decay))
        found._check(list(named))
        return found

    def of_name(self, name: str) -> tuple[float, float]:
        """The factors of the learning rate and of the weight decay of one parameter."""
        first = next((one for one in self.patterns if self._fits(name, one.match)), None)
        lr, decay = self.of_network.get(name, (1.0, 1.0)) if first is None else (first.lr, first.weight_decay)
        return lr * self.of_layers.get(name, 1.0), decay

    def apply(self, optimizer: Optimizer, names: Sequence[str], tensors: Sequence[Tensor]) -> Optimizer:
        """Let the optimiser have a group for each pair of factors; it is returned. names: of its `tensors`.

        Raises SettingError for an optimiser with groups of its own, and for a factor of a decay that it does not have.
        """
        factors = [self.of_name(name) for name in names]
        if all(one == (1.0, 1.0) for one in factors):
            return optimizer
        if len(optimizer.param_groups) != 1:
            setting = "layer_decay" if self.of_layers else "parameters"
            raise SettingError(f"train.{setting}: the optimizer has groups of its own; accepted: one without")
        kind = type(optimizer).__name__
        settings = {key: value for key, value in optimizer.param_groups[0].items() if key != "params"}
        if "weight_decay" not in settings and any(decay != 1 for _, decay in factors):
            raise SettingError(f"train.parameters: {kind} has no weight_decay; accepted: factors of lr alone")
        groups: dict[tuple[float, float], list[Tensor]] = {}
        for one, tensor in zip(factors, tensors, strict=True):
            groups.setdefault(one, []).append(tensor)
        optimizer.param_groups[:] = [
            {"params": own, **settings, **_multiplied(settings, *one)} for one, own in groups.items()
        ]
        return optimizer

    def _check(self, names: Sequence[str]) -> None:
        for one in self.patterns:
            if not any(self._fits(name, one.match) for name in names):
                near = nearest(one.match, [VECTORS, *_patterns(names)])
                hint = f"did you mean {near!r}? " if near else ""
                raise SettingError(
                    f"parameters: match is {one.match!r}, which fits no parameter; {hint}accepted: a pattern of names "
                    f"such as {names[0] if names else 'conv1.weight'!r}"
                )

    def _fits(self, name: str, match: str) -> bool:
        return name in self.vectors if match == VECTORS else fnmatchcase(name, match)


def _patterns(names: Sequence[str]) -> Iterator[str]:
    """Yield patterns that fit some of these names: each by itself, by its layers, and by its ending, as `*.bias`."""
    for name in names:
        layer, _, ending = name.rpartition(".")
        yield from (name, f"*.{ending}")
        while layer:
            yield f"{layer}.*"
            layer = layer.rpartition(".")[0]


def _multiplied(settings: Mapping[str, float], lr: float, decay: float) -> dict[str, float]:
    return {LR_FACTOR: lr} | ({"weight_decay": settings["weight_decay"] * decay} if "weight_decay" in settings else {})
