"""Byte-level byte pair encoding, as GPT-2 has it (Sennrich et al. 2016; Radford et al. 2019), from its `merges.txt`.

Symbols 0 to 255 are the bytes, in GPT-2's order, and each merge is the next one: what its `vocab.json` says, too.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from volary.data.formats.text_file import read_text
from volary.errors import DataError

if TYPE_CHECKING:
    from volary.data.storage.place import Place

ACCEPTED = "GPT-2's merges.txt: two symbols on each line, the most frequent pair first"
MOST_MERGES = 2**20
LONGEST_WORD = 1000  # characters: merging takes the square of them
# words with the space before them, as GPT-2 cuts text; what is no letter and no digit for `re` is punctuation
_WORDS = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")


def _letters() -> dict[int, str]:
    """Each byte as a character that can be seen: itself, or one from 256 on; those that are themselves come first."""
    seen = [*range(ord("!"), ord("~") + 1), *range(ord("\xa1"), ord("\xac") + 1), *range(ord("\xae"), ord("\xff") + 1)]
    others = [byte for byte in range(256) if byte not in seen]
    return {byte: chr(byte) for byte in seen} | {byte: chr(256 + place) for place, byte in enumerate(others)}


class Bpe:
    """Byte-pair encoding of text, by merges that are read from a file."""

    def __init__(self, path: Place) -> None:
        """Read the merges. Raises DataError for a line that is no pair of symbols that were there before."""
        self._letters = _letters()
        symbols = list(self._letters.values())
        self._numbers = {symbol: number for number, symbol in enumerate(symbols)}
        self._ranks: dict[tuple[str, str], int] = {}
        for line, text in enumerate(read_text(path, ACCEPTED).splitlines(), start=1):
            if not text.strip() or (line == 1 and text.startswith("#version")):
                continue
            pair = text.split(" ")
            if len(pair) != 2 or any(symbol not in self._numbers for symbol in pair) or len(symbols) > MOST_MERGES:
                raise DataError(f"{path}:{line}: {text!r} is no pair of known symbols; accepted: {ACCEPTED}")
            self._ranks[pair[0], pair[1]] = line
            if pair[0] + pair[1] not in self._numbers:
                self._numbers[pair[0] + pair[1]] = len(symbols)
                symbols.append(pair[0] + pair[1])
        self._symbols = symbols
        self._known: dict[str, list[int]] = {}

    def __len__(self) -> int:
        return len(self._symbols)

    def encode(self, text: str) -> list[int]:
        """The numbers of the symbols that the text is."""
        found: list[int] = []
        for whole in _WORDS.findall(text):
            for start in range(0, len(whole), LONGEST_WORD):
                word = whole[start : start + LONGEST_WORD]
                if word not in self._known:
                    self._known[word] = [self._numbers[symbol] for symbol in self._merged(word)]
                found += self._known[word]
        return found

    def decode(self, numbers: list[int]) -> str:
        """The text that these numbers stand for."""
        bytes_of = {letter: byte for byte, letter in self._letters.items()}
        letters = "".join(self._symbols[number] for number in numbers)
        return bytes(bytes_of[letter] for letter in letters).decode("utf-8", "replace")

    def _merged(self, word: str) -> list[str]:
        parts = [self._letters[byte] for byte in word.encode("utf-8")]
        while len(parts) > 1:
            best = min(pairwise(parts), key=lambda pair: self._ranks.get(pair, MOST_MERGES + 2))
            if best not in self._ranks:
                break
            parts = _joined(parts, best)
        return parts


def _joined(parts: list[str], pair: tuple[str, str]) -> list[str]:
    """All places where the pair stands, from the left."""
    found: list[str] = []
    place = 0
    while place < len(parts):
        here = place + 1 < len(parts) and (parts[place], parts[place + 1]) == pair
        found.append(parts[place] + parts[place + 1] if here else parts[place])
        place += 2 if here else 1
    return found
