"""Lines of a text, of which a network of symbols says what follows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from volary.data.formats.text_file import read_text
from volary.data.memory import InMemory
from volary.data.unlabelled.unlabelled import Unlabelled
from volary.errors import DataError

if TYPE_CHECKING:
    from volary.data.data_names import DataNames
    from volary.data.formats.symbols import SymbolSource


def lines_to_continue(source: SymbolSource, given: Path, known: DataNames, accepted: str) -> Unlabelled:
    """Each line that is not empty, of which the last `length` symbols are read; the prediction follows them.

    Raises DataError for a character that the training's text has not, and if there is no line. accepted: what `given`
    may be.
    """
    lines = [(number, line) for number, line in enumerate(read_text(given, accepted).splitlines(), 1) if line]
    if not lines:
        raise DataError(f"{given}: has no line that is not empty; accepted: {accepted}")
    encode = source.encoder(known.all_classes)
    inputs = torch.zeros(len(lines), source.length, dtype=torch.int64)
    ends = torch.empty(len(lines), dtype=torch.int64)
    for row, (number, line) in enumerate(lines):
        try:
            symbols = encode(line)[-source.length :]
        except KeyError as unknown:
            raise DataError(
                f"{given}:{number}: has {unknown.args[0]!r}, which the text of the training has not; accepted: its "
                f"{known.count} characters"
            ) from None
        inputs[row, : len(symbols)] = torch.tensor(symbols)
        ends[row] = len(symbols) - 1
    return Unlabelled(InMemory(inputs, ends), last=True)
