"""Text as numbers of symbols and back: of characters, or of pairs of bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from volary.data.formats.bpe import Bpe
from volary.data.storage.place import located

if TYPE_CHECKING:
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
    """Return what a source's `encoder` is, by pairs of bytes if there are merges, else by characters."""
    if merges is not None:
        return Bpe(located(merges)).encode
    numbers = {letter: number for number, letter in enumerate(characters)}
    return lambda text: [numbers[letter] for letter in text]


def decoder_of(merges: Location | None, characters: Sequence[str]) -> Callable[[Sequence[int]], str]:
    """Return what a source's `decoder` is, likewise."""
    if merges is not None:
        coder = Bpe(located(merges))
        return lambda numbers: coder.decode([number for number in numbers if number < len(coder)])
    return lambda numbers: "".join(characters[number] for number in numbers if number < len(characters))
