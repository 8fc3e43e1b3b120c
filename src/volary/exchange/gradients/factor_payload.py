"""The payload of a gradient that is a sum of outer products: the vectors whose products they are.

Sufficient factors (Xie et al., UAI 2016): of a fully connected layer each sample's error and input vector, the sum of
whose products is the gradient.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

INDEX = {torch.float32: torch.int32, torch.float64: torch.int64}  # an index travels in the bits of one value


class Payload:
    """The factors of one layer: this rank's as backward makes them, and those of all it heard from.

    A row of values is `errors` values of an error vector, and behind it `inputs` values of what it is multiplied with;
    lookup: or in one value the number of the weight's row that it is added to. rows: what was heard, (rows, width),
    rank by rank. used: this step's backward reached the layer, if without a row.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._dtype, self._device = dtype, device
        self._made: list[tuple[int, Tensor]] = []  # by the backward pass that made them
        self._own: list[Tensor] = []
        self._leaving: deque[Tensor | None] = deque()
        self._rooms = [torch.empty(0, dtype=dtype), torch.empty(0, dtype=dtype)]
        self.rows = self._rooms[0]
        self.used = False

    def hold(self, errors: int, inputs: int, *, lookup: bool) -> None:
        """Say what a row is; before the first."""
        self.errors, self.width, self.lookup = errors, errors + inputs, lookup

    def add(self, errors: Tensor, inputs: Tensor, weight: float) -> None:
        """Backward came to a use of the layer: errors (rows, errors), inputs (rows, inputs) or row numbers (rows,).

        weight: factor of the errors. They are copied: what they are copied from may be reused before they have left.
        """
        if not weight:  # without samples: whatever was computed, NaN too
            errors, inputs = errors[:0], inputs[:0]
        made = torch.empty(errors.shape[0], self.width, dtype=self._dtype, device=self._device)
        if weight:
            torch.mul(errors, weight, out=made[:, : self.errors])
        else:
            made[:, : self.errors] = 0  # where nothing counts they may be no numbers
        if self.lookup:
            made.view(INDEX[self._dtype])[:, -1] = inputs
        else:
            made[:, self.errors :] = inputs
        self._made.append((torch._C._current_graph_task_id(), made))

    def passed(self) -> None:
        """The backward pass under way is through with the layer: what it made counts.

        What others made does not: they ended elsewhere, at gradients that somebody asked for with `autograd.grad`.
        """
        task = torch._C._current_graph_task_id()
        self._own += [made for number, made in self._made if number == task]
        self._made = [one for one in self._made if one[0] != task]
        self.used = True

    def seal(self) -> None:
        """End the step's payload: what is here may leave."""
        own, self._own = self._own or [torch.empty(0, self.width, dtype=self._dtype)], []
        self._leaving.append((own[0] if len(own) == 1 else torch.cat(own)).cpu() if self.used else None)

    def open(self) -> None:
        """Begin the next step, with nothing left of the one before."""
        self._made, self.used = [], False

    def drop(self) -> None:
        """Drop what the passes of this step have made so far."""
        self._own.clear()
        self.open()

    def forget(self) -> None:
        """Drop the step's, and what was to leave and has not."""
        self._leaving.clear()
        self.drop()

    def leave(self) -> Tensor | None:
        """This rank's rows (rows, width) of the next step that was sealed; None if its backward missed the layer."""
        return self._leaving.popleft()

    def room(self, count: int) -> Tensor:
        """Memory for the next `count` rows, (count, width): not that in which `rows` lie, which may still be read."""
        values = count * self.width
        self._rooms.reverse()
        if values > self._rooms[0].numel():
            self._rooms[0] = torch.empty(values, dtype=self._dtype)
        return self._rooms[0][:values].view(-1, self.width)

    def landed(self, rows: Tensor, scale: float) -> None:
        """Note that all rows are here. scale: factor of what is formed of them."""
        if scale != 1:
            rows[:, : self.errors].mul_(scale)
        self.rows = rows.to(self._device)

    def form(self, start: int, end: int, out: Tensor) -> None:
        """Write rows `start` to `end` of the weight's gradient, the sum over all rows here, to `out`.

        out: (end - start, inputs), or with lookup (end - start, errors).
        """
        errors = self.rows[:, : self.errors]
        if not self.lookup:
            torch.mm(errors[:, start:end].t(), self.rows[:, self.errors :], out=out)
            return
        numbers = self.rows.view(INDEX[self._dtype])[:, -1]
        here = (numbers >= start) & (numbers < end)
        out.zero_().index_add_(0, numbers[here] - start, errors[here])

    def form_bias(self, start: int, end: int, out: Tensor) -> None:
        """Write values `start` to `end` of the bias's gradient to `out` (end - start,)."""
        torch.sum(self.rows[:, start:end], 0, out=out)
