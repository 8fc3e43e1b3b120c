"""Text as numbers of symbols and back: of characters, or of pairs of bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from volary.data.formats.bpe import Bpe
from volary.data.formats.text_file import read_text
from volary.data.storage.place import located
from volary.errors import DataError

if TYPE_CHECKING:
    from volary.data.data_names import DataNames
    from volary.data.unlabelled.unlabelled import Unlabelled
    from volary.session.values.url import Location


@runtime_checkable
class SymbolSource(Protocol):
    """A source of sequences of `length` symbols."""

    @property
    def length(self) -> int: ...

    def encoder(self, characters: Sequence[str]) -> Callable[[str], list[int]]:
        """Return the encoder of a text's symbols. characters: the vocabulary, if that is not of merges; for any other
        character it raises KeyError.
        """
        ...

    def decoder(self, characters: Sequence[str]) -> Callable[[Sequence[int]], str]:
        """The text of numbers, back again. characters: as for `encoder`; a number beyond them is left out."""
        ...


def encoder_of(merges: Location | None, characters: Sequence[str]) -> Callable[[str], list[int]]:
    """See `SymbolSource.encoder`."""
    if merges is not None:
        return Bpe(located(merges)).encode
    numbers = {letter: number for number, letter in enumerate(characters)}
    return lambda text: [numbers[letter] for letter in text]


def decoder_of(merges: Location | None, characters: Sequence[str]) -> Callable[[Sequence[int]], str]:
    """See `SymbolSource.decoder`."""
    if merges is not None:
        coder = Bpe(located(merges))
        return lambda numbers: coder.decode([number for number in numbers if number < len(coder)])
    return lambda numbers: "".join(characters[number] for number in numbers if number < len(characters))


def lines_to_continue(source: SymbolSource, given: Path, known: DataNames, accepted: str) -> Unlabelled:
    """Each line that is not empty, of which the last `length` symbols are read; the prediction follows them.

    Raises DataError for a character that the training's text has not, and if there is no line. accepted: what `given`
    may be.
    """
    import torch

    from volary.data.memory import InMemory
    from volary.data.unlabelled.unlabelled import Unlabelled

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
