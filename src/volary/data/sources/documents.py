"""Many text files for language models, tokenised once into a file that is mapped into memory, packed into sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from volary.data.formats.bpe import ACCEPTED as MERGES
from volary.data.formats.files import existing_folder
from volary.data.formats.symbols import decoder_of, encoder_of
from volary.data.formats.text_file import text_file
from volary.data.samples import BOTH
from volary.data.storage.place import located
from volary.errors import DataError, SettingError
from volary.session.values.url import Location

if TYPE_CHECKING:
    from volary.data.data_names import DataNames
    from volary.data.datasets.packed_documents import PackedDocuments
    from volary.data.samples import Split
    from volary.data.unlabelled.unlabelled import Unlabelled

_ACCEPTED = "text files in UTF-8, each a document"


@dataclass(frozen=True, kw_only=True)
class Documents:
    """Sequences (length,) int64 of documents that follow one another; no target goes from one document to the next."""

    folder: Path  # holds the text files, also in folders
    tokens: Path  # a folder that gets the tokenised text, which later runs and all workers of a machine map
    files: str = "*.txt"  # which files of the folder, at any depth
    merges: Location | None = None  # byte pair encoding: GPT-2's merges.txt, or one like it; none: characters
    length: int = 128  # time steps of a sample
    validation: float = 0.1  # share of the documents, the last by name, that is validation data

    def __post_init__(self) -> None:
        if self.length < 1:
            raise SettingError(f"length is {self.length}; accepted: 1 or more time steps")
        if not 0 < self.validation < 1:
            raise SettingError(f"validation is {self.validation}; accepted: above 0, below 1")
        if not self.files or self.files.startswith("/"):
            raise SettingError(f"files is {self.files!r}; accepted: a pattern below folder, as *.txt")

    def check(self, parts: Sequence[Split] = BOTH) -> None:
        """Look whether there are files, the first is text, and each part gets one."""
        found = self._files()
        text_file(found[0], _ACCEPTED)
        if self.merges is not None:
            text_file(located(self.merges), MERGES)
        for split in parts:
            self._documents(split, len(found))

    def count(self, split: Split) -> None:
        """Unknown before the files have been tokenised."""

    def open(self, split: Split) -> PackedDocuments:
        """Map the part's tokens, which are made first if the files are not those that they were made of.

        Raises DataError for a file that is not UTF-8, and for a part that fills no sequence.
        """
        from volary.data.datasets.packed_documents import PackedDocuments
        from volary.data.records.tokenised import Tokenised

        files = self._files()
        found = Tokenised.of(files, self.tokens, None if self.merges is None else located(self.merges), _ACCEPTED)
        first, last = self._documents(split, len(files))
        samples = PackedDocuments.between(found, first, last, self.length)
        if not len(samples):
            raise DataError(
                f"{self.folder}: the {split} part has {len(samples.symbols)} symbols, ends of documents included; "
                f"accepted: at least length + 1 = {self.length + 1}"
            )
        return samples

    def unlabelled(self, given: Path, known: DataNames) -> Unlabelled:
        """The lines of a text file, each of which is continued."""
        from volary.data.unlabelled.lines_to_continue import lines_to_continue

        return lines_to_continue(self, given, known, "a text file in UTF-8")

    def encoder(self, characters: Sequence[str]) -> Callable[[str], list[int]]:
        return encoder_of(self.merges, characters)

    def decoder(self, characters: Sequence[str]) -> Callable[[Sequence[int]], str]:
        return decoder_of(self.merges, characters)

    def _files(self) -> list[Path]:
        existing_folder(self.folder, "a folder of text files")
        found = sorted(path for path in self.folder.rglob(self.files) if path.is_file() and path.name[0] != ".")
        if not found:
            raise DataError(f"{self.folder}: has no file {self.files}; accepted: {_ACCEPTED}")
        return found

    def _documents(self, split: Split, count: int) -> tuple[int, int]:
        """The first document of a part, and the one after its last. Raises DataError if there is none."""
        cut = round(count * (1 - self.validation))
        first, last = (0, cut) if split == "train" else (cut, count)
        if first == last:
            raise DataError(
                f"{self.folder}: {count} files leave none to the {split} part (validation is {self.validation:g}); "
                "accepted: at least one file in each part"
            )
        return first, last


SOURCE = Documents
