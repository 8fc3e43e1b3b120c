"""A worker's push of a layer as factors: servers form the gradient (Project Adam: Chilimbi et al., OSDI 2014)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from volary.exchange.servers.pushed import as_bytes
from volary.server.protocol.header import Form, Header

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.channels.channel import Payload
    from volary.exchange.gradients.factor_payload import Payload as Made


class FactorRows:
    """The factors of one layer in this contribution: rows (n, errors + inputs); None if backward missed it."""

    def __init__(self, made: Made) -> None:
        self.made = made
        self.rows: Tensor | None = None

    def take(self) -> None:
        """Take the factors that backward has made of the layer."""
        self.rows = self.made.leave()

    def errors(self, start: int, end: int) -> Tensor:
        """The errors of these rows of the weight, (n, end - start)."""
        rows = self.made.room(0) if self.rows is None else self.rows
        return rows[:, start:end]

    def inputs(self) -> Tensor:
        """The inputs of the layer, (n, inputs)."""
        rows = self.made.room(0) if self.rows is None else self.rows
        return rows[:, self.made.errors :]


class WeightRows:
    """Rows `start` to `end` of a weight: factors, or where those are more bytes the product.

    values: where that may be formed, (numel,).
    """

    form = Form.FACTORS

    def __init__(self, rows: FactorRows, start: int, end: int, values: Tensor) -> None:
        self._rows, self._start, self._end, self._values = rows, start, end, values
        self._product = self._payload = as_bytes(values)

    @property
    def length(self) -> int:
        return len(self._payload)

    @property
    def codec(self) -> str:
        """The codec of what travels in this contribution."""
        return "factors" if self.form is Form.FACTORS else "none"

    def ready(self) -> int:
        errors, inputs = self._rows.errors(self._start, self._end), self._rows.inputs()
        values = errors.numel() + inputs.numel()
        if 0 < values < self._values.numel():
            self.form, self._payload = Form.FACTORS, as_bytes(torch.cat([errors, inputs], 1).view(-1))
        else:
            self.form, self._payload = Form.EXACT, self._product
            torch.mm(errors.t(), inputs, out=self._values.view(self._end - self._start, -1))
        return int(self._rows.rows is not None)

    def leave(self, header: Header) -> tuple[Header, Payload]:
        return header, self._payload


class BiasRows:
    """Values `start` to `end` of the bias beside such a weight, in `values` (end - start,)."""

    form = Form.EXACT
    codec = "none"

    def __init__(self, rows: FactorRows, start: int, end: int, values: Tensor) -> None:
        self._rows, self._start, self._end, self._values = rows, start, end, values
        self._payload = as_bytes(values)

    @property
    def length(self) -> int:
        return len(self._payload)

    def ready(self) -> int:
        torch.sum(self._rows.errors(self._start, self._end), 0, out=self._values)
        return int(self._rows.rows is not None)

    def leave(self, header: Header) -> tuple[Header, Payload]:
        return header, self._payload
