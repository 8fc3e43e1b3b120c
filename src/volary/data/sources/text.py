"""Plain text for language models: each character, or pair-encoded symbol, has the next one as its target."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from volary.data.formats.bpe import ACCEPTED, Bpe
from volary.data.formats.symbols import decoder_of, encoder_of
from volary.data.formats.text_file import not_utf8, read_text, text_file
from volary.data.samples import BOTH
from volary.data.storage.place import located
from volary.errors import DataError, SettingError
from volary.session.values.url import Location

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from torch import Tensor

    from volary.data.data_names import DataNames
    from volary.data.datasets.lines import Lines
    from volary.data.samples import Split
    from volary.data.unlabelled.unlabelled import Unlabelled

_ACCEPTED = "a text file in UTF-8"


@dataclass(frozen=True, kw_only=True)
class Text:
    """Sequences of `length` symbols, one after the other; of characters the vocabulary is the whole file's, sorted."""

    path: Location  # a text file in UTF-8
    merges: Location | None = None  # byte pair encoding: GPT-2's merges.txt, or one like it; none: characters
    length: int = 64  # time steps of a sample
    lines: bool = False  # each line is a sample of its own, up to `length` long, and smaller ones are filled up
    validation: float = 0.1  # share of the text, at its end, that is validation data

    def __post_init__(self) -> None:
        if not self.path:
            raise SettingError(f"path is empty; accepted: {_ACCEPTED}")
        if self.length < 1:
            raise SettingError(f"length is {self.length}; accepted: 1 or more time steps")
        if not 0 < self.validation < 1:
            raise SettingError(f"validation is {self.validation}; accepted: above 0, below 1")

    def check(self, parts: Sequence[Split] = BOTH) -> None:
        """Look whether the file exists, is long enough to be cut at all, and starts as UTF-8."""
        path = text_file(located(self.path), _ACCEPTED)
        with path.open("rb") as file:
            start = file.read(1 << 16)
        try:
            codecs.getincrementaldecoder("utf-8")().decode(start)
        except UnicodeDecodeError:
            raise not_utf8(path, _ACCEPTED) from None
        if self.merges is not None:
            text_file(located(self.merges), ACCEPTED)
        for split in parts:
            self._bounds(split, path.stat().st_size)  # a symbol has at least one byte

    def count(self, split: Split) -> None:
        """Unknown before the whole file has been decoded."""

    def open(self, split: Split) -> Sequences | Lines:
        """Read the whole file, number its characters, keep the split's (4 bytes a character)."""
        import numpy as np
        import torch

        text = read_text(located(self.path), _ACCEPTED)
        if self.lines:
            return self._lines(split, text)
        if self.merges is not None:
            coder = Bpe(located(self.merges))
            cut = round(len(text) * (1 - self.validation))
            symbols = coder.encode(text[:cut] if split == "train" else text[cut:])
            self._refuse_short(split, len(symbols), "symbols of the file")
            return Sequences(torch.tensor(symbols, dtype=torch.int32), self.length, len(coder))
        letters, numbers = np.unique(np.frombuffer(text.encode("utf-32-le"), dtype="<u4"), return_inverse=True)
        start, end = self._bounds(split, len(text))
        characters = torch.from_numpy(numbers[start:end].astype(np.int32))
        return Sequences(characters, self.length, len(letters), "".join(map(chr, letters)))

    def unlabelled(self, given: Path, known: DataNames) -> Unlabelled:
        """The lines of a text file, each of which is continued."""
        from volary.data.unlabelled.lines_to_continue import lines_to_continue

        return lines_to_continue(self, given, known, _ACCEPTED)

    def encoder(self, characters: Sequence[str]) -> Callable[[str], list[int]]:
        return encoder_of(self.merges, characters)

    def decoder(self, characters: Sequence[str]) -> Callable[[Sequence[int]], str]:
        return decoder_of(self.merges, characters)

    def _lines(self, split: Split, text: str) -> Lines:
        """Each line with its end, which is a symbol, too; empty ones are left out."""
        import torch

        from volary.data.datasets.lines import Lines

        lines = [line for line in text.splitlines(keepends=True) if line.strip("\r\n")]
        cut = round(len(lines) * (1 - self.validation))
        mine = lines[:cut] if split == "train" else lines[cut:]
        if not mine:
            raise DataError(f"{self.path}: {len(lines)} lines leave none to the {split} part; accepted: more lines")
        if self.merges is not None:
            coder = Bpe(located(self.merges))
            encoded, classes, vocabulary = [coder.encode(line) for line in mine], len(coder), ""
        else:
            vocabulary = "".join(sorted(set(text)))
            numbers = {letter: number for number, letter in enumerate(vocabulary)}
            encoded, classes = [[numbers[letter] for letter in line] for line in mine], len(vocabulary)
        whole = [line for line in encoded if len(line) > 1]
        cut_off, short = sum(len(line) > self.length + 1 for line in whole), len(encoded) - len(whole)
        remarks = [f"{self.path}: {short:,} lines of the {split} part have one symbol and are not read"] * bool(short)
        if cut_off:
            remarks.append(
                f"{self.path}: {cut_off:,} of {len(whole):,} lines of the {split} part are longer than length "
                f"({self.length}) and are cut"
            )
        starts = torch.tensor([0, *map(len, whole)]).cumsum(0)
        symbols = torch.tensor([symbol for line in whole for symbol in line], dtype=torch.int32)
        return Lines(symbols, starts, self.length, classes, vocabulary, tuple(remarks))

    def _bounds(self, split: Split, characters: int) -> tuple[int, int]:
        """First character of the split and the one after its last. Raises DataError if it has no whole sample."""
        cut = round(characters * (1 - self.validation))
        start, end = (0, cut) if split == "train" else (cut, characters)
        self._refuse_short(split, end - start, f"{characters} characters")
        return start, end

    def _refuse_short(self, split: Split, left: int, whole: str) -> None:
        if left < self.length + 1:
            raise DataError(
                f"{self.path}: {whole} leave {left} to the {split} part; accepted: at least "
                f"length + 1 = {self.length + 1} in each part (validation is {self.validation})"
            )


@dataclass(frozen=True, eq=False)
class Sequences:
    """A long row of symbols (n,) int32, cut into samples of `length`; what is left over at the end is not used."""

    symbols: Tensor
    length: int
    classes: int  # different symbols that there may be
    vocabulary: str = ""  # of characters: symbol i stands for vocabulary[i]

    def __len__(self) -> int:
        return (self.symbols.shape[0] - 1) // self.length

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(self.vocabulary)

    def renumbered(self, numbers: Tensor, class_names: tuple[str, ...]) -> Sequences:
        from volary.data.data_names import renumber

        symbols = renumber(self.symbols.long(), numbers).int()
        return replace(self, symbols=symbols, classes=len(class_names), vocabulary="".join(class_names))

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.length,)

    @property
    def input_dtype(self) -> torch.dtype:
        """The type int64, which an embedding takes."""
        import torch

        return torch.int64

    def fetch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs (n, length) and, one character on, targets (n, length); both int64."""
        import torch

        places = indices.unsqueeze(1) * self.length + torch.arange(self.length + 1)
        symbols = self.symbols[places].long()
        return symbols[:, :-1].contiguous(), symbols[:, 1:].contiguous()


SOURCE = Text
