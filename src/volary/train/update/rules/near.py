"""Another optimiser's steps, held near where every so many of them began."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from volary.train.update.rules.by_group import evaluated

FROM, TAKEN = "began_at", "taken"


class Near(Optimizer):
    """The conservative subproblem (Li et al., KDD 2014, equation 3): f(w) + gamma / 2 |w - w0|^2, by steps of `inner`.

    w0 is what a parameter was before the first of each `steps` updates of it. Groups and state are those of `inner`,
    with w0 and the count of updates beside what that remembers of a parameter.
    """

    def __init__(self, inner: Optimizer, gamma: float, steps: int) -> None:
        self._inner, self._gamma, self._steps = inner, gamma, steps
        super().__init__(inner.param_groups, inner.defaults)
        self._share()

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update the parameters that have gradients, as torch's optimisers do."""
        loss = None if closure is None else evaluated(closure)
        used = [one for group in self.param_groups for one in group["params"] if one.grad is not None]
        found: list[tuple[Tensor, int]] = []
        for one in used:
            known = self._inner.state.get(one, {})
            taken = known.get(TAKEN, 0)
            if taken % self._steps:
                # a new gradient: what is here may be others' memory
                one.grad = torch.add(one.grad, one - known[FROM], alpha=self._gamma)
                found.append((known[FROM], taken))
            else:
                found.append((one.clone(), taken))
        self._inner.step()
        for one, (began_at, taken) in zip(used, found, strict=True):  # after it: some begin with a state that is empty
            self._inner.state[one].update({FROM: began_at, TAKEN: taken + 1})
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from such a state, in the optimiser that this one is of, too."""
        self._inner.load_state_dict(state_dict)
        self._share()

    def _share(self) -> None:
        self.param_groups, self.state = self._inner.param_groups, self._inner.state
