"""Parameters that are not trained for some of a run: they neither travel nor change, and no rank keeps state of them.

What is trained is fixed while workers exchange. So a step at which something is thawed ends a stage: all ranks write a
checkpoint, make the network anew, of which more is trained, and resume from it. So does a run that is resumed there.
Over servers that is another attempt at the run, see `volary.train.served.thawing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from volary.errors import SettingError
from volary.naming import fits, named_modules, named_parameters, trained_parameters
from volary.session.changing import thaws_at
from volary.session.reading.problems import nearest

if TYPE_CHECKING:
    from volary.session.train_section import Freeze

BatchNorm = nn.modules.batchnorm._BatchNorm


@dataclass(frozen=True)
class Frozen:
    """The parameters and layers that a session's rules have frozen. rules: by parameter, the rule that counts for it.

    still: batch norms whose statistics stay as they are, by name, each with its rule.
    """

    rules: Mapping[str, Freeze]
    still: Mapping[str, Freeze]

    def thaws_at(self, steps_per_epoch: int) -> tuple[int, ...]:
        """The steps after which something is thawed, in order."""
        return thaws_at((*self.rules.values(), *self.still.values()), steps_per_epoch)

    def thaw(self, module: nn.Module, step: int, steps_per_epoch: int) -> list[str]:
        """Let the module train what is thawed once so many steps are done; the names of these parameters."""

        def over(rule: Freeze | None) -> bool:
            until = None if rule is None else rule.until.in_steps(steps_per_epoch)
            return until is not None and until <= step

        for name, part in named_modules(module):
            if over(self.still.get(name)):
                part.train()
        thawed = [(name, one) for name, one in named_parameters(module) if over(self.rules.get(name))]
        for _, parameter in thawed:
            parameter.requires_grad_(True)
        return [name for name, _ in thawed]


NOTHING_FROZEN = Frozen({}, {})


def freeze(module: nn.Module, rules: Sequence[Freeze]) -> Frozen:
    """Freeze all that any of the rules is about, of which the first that fits a name counts.

    Parameters that the network itself does not train stay so. Raises SettingError for a rule that fits no parameter.
    """
    names = [name for name, _ in named_parameters(module)]
    for rule in rules:
        if not any(fits(name, rule.match) for name in names):
            layers = dict.fromkeys(name.rpartition(".")[0] or name for name in names)
            near = nearest(rule.match, layers)
            hint = f"did you mean {near!r}? " if near else ""
            raise SettingError(
                f"train.freeze: match is {rule.match!r}, which fits no parameter; {hint}accepted: a layer, or a "
                f"pattern of names such as {names[0] if names else 'conv1.weight'!r}"
            )
    trained = trained_parameters(module)
    found = {name: first for name in trained if (first := _rule_of(name, rules)) is not None}
    for name in found:
        trained[name].requires_grad_(False)
    norms = {name: part for name, part in named_modules(module) if isinstance(part, BatchNorm)}
    about = {name: first for name in norms if (first := _rule_of(f"{name}.weight", rules)) is not None}
    still = {name: first for name, first in about.items() if first.statistics == "keep"}
    for name in still:
        norms[name].eval()
    return Frozen(found, still)


def _rule_of(name: str, rules: Sequence[Freeze]) -> Freeze | None:
    return next((rule for rule in rules if fits(name, rule.match)), None)
