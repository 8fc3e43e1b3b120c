"""Writes text with a network of symbols: what follows a prompt, one symbol after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from volary.data.data_names import DataNames
from volary.data.formats.symbols import SymbolSource
from volary.data.order import seeded
from volary.errors import SettingError
from volary.network.criteria.classification import classes_last
from volary.network.criteria.fit import main_output
from volary.network.evaluating import evaluating
from volary.network.operations.carried_state import states_apart

if TYPE_CHECKING:
    from torch import Tensor, nn

    from volary.train.model import Model


class TextWriter:
    """Continues the session's prompt. What is drawn depends on the seed and the step alone: a resumed run writes the
    same, and training draws from another generator.
    """

    def __init__(self, model: Model, source: SymbolSource) -> None:
        """source: says what symbols are. Raises SettingError for a prompt with a character that the data has not."""
        self._module: nn.Module = model.module
        self._settings, self._seed = model.session.evaluate.text, model.session.train.seed
        characters = DataNames.of(model.samples).all_classes
        try:
            self._prompt = source.encoder(characters)(self._settings.prompt)
        except KeyError as unknown:
            raise SettingError(
                f"evaluate.text.prompt has {unknown.args[0]!r}, which the data has not; accepted: its "
                f"{len(characters)} characters"
            ) from None
        self.prompt = self._settings.prompt
        self._decode: Callable[[Sequence[int]], str] = source.decoder(characters)
        self._length = source.length

    @classmethod
    def of(cls, model: Model) -> TextWriter | None:
        """The writer of a session; None if it asks for no text. Raises SettingError if its prompt cannot be read."""
        source = model.session.data.source
        asked = bool(model.session.evaluate.text.prompt)
        return cls(model, source) if asked and isinstance(source, SymbolSource) else None

    @torch.no_grad()
    def write(self, step: int, device: torch.device, progress: Callable[[str], None] = lambda _: None) -> str:
        """Return the text that follows the prompt. Each symbol is a forward of one sample, of `length` symbols, as the
        data has them.

        Workers that run parts of one network all call it, at once. progress: called with each symbol.
        """
        drawn, symbols = seeded(self._seed, "text", step), list(self._prompt)
        inputs = torch.zeros(1, self._length, dtype=torch.int64, device=device)
        with evaluating(self._module), states_apart(self._module, keeping=False):
            for _ in range(self._settings.length):
                progress("evaluate")
                last = symbols[-self._length :]
                inputs.zero_()[0, : len(last)] = torch.tensor(last)  # those after them are not looked at
                scores = classes_last(main_output(self._module(inputs)), (self._length,))[0, len(last) - 1]
                symbols.append(self._next(scores.double().cpu(), drawn))
        return self._decode(symbols[len(self._prompt) :])

    def _next(self, scores: Tensor, drawn: torch.Generator) -> int:
        """The symbol that follows, by its scores (classes,)."""
        temperature = self._settings.temperature
        if not temperature or not scores.isfinite().all():
            return int(scores.argmax())
        return int(torch.multinomial((scores / temperature).softmax(0), 1, generator=drawn))
