"""Data sets of Hugging Face's library `datasets`, by name or as it saved them. Needs the extra `huggingface`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from volary.data.formats.extras import needed
from volary.data.samples import BOTH
from volary.data.tables.arrow_settings import ArrowFiles, ArrowSettings
from volary.errors import DataError, SettingError

if TYPE_CHECKING:
    from volary.data.samples import Split

_SAVED = ("dataset_dict.json", "state.json")  # what `save_to_disk` writes: of several parts, and of one


@dataclass(frozen=True, kw_only=True)
class HuggingFace(ArrowSettings):
    """A data set that `datasets` keeps on this machine, mapped from its Arrow files: images, or columns of numbers."""

    dataset: str  # a name as `load_dataset` takes it, or a folder: of files, or one that `save_to_disk` wrote
    config: str | None = None  # the configuration, of a data set that has several
    train: str = "train"  # what the training part is called there
    test: str = "test"  # what the validation data is called there

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.dataset or not self.train or not self.test:
            raise SettingError("dataset, train or test is empty; accepted: the names of a data set and of its parts")

    def check(self, parts: Sequence[Split] = BOTH) -> None:
        """Nothing: what is there the library knows, and it is not imported to check."""

    def count(self, split: Split) -> None:
        """Unknown before the data set is opened."""

    def files_of(self, split: Split) -> ArrowFiles:
        """The files that the library keeps. Raises DataError if it cannot load the part, or has it in memory alone."""
        name = getattr(self, split)
        found = self._loaded(name)
        paths = [Path(file["filename"]) for file in found.cache_files]
        if not paths or found._indices is not None:
            raise DataError(
                f"{self.dataset}: its part {name} is not in files as they are (it was selected, shuffled or made in "
                "memory); accepted: one that save_to_disk wrote"
            )
        return ArrowFiles(f"{self.dataset}: {name}", paths)

    def _loaded(self, name: str) -> Any:
        """The part, a `datasets.Dataset`."""
        library = needed("datasets", "huggingface")
        folder = Path(self.dataset).expanduser()
        try:
            if any((folder / file).exists() for file in _SAVED):
                found = library.load_from_disk(str(folder))
                return found if (folder / "state.json").exists() else found[name]
            return library.load_dataset(self.dataset, self.config, split=name)
        except Exception as problem:  # of many kinds, and a loading script's own
            lines = str(problem).splitlines() or [type(problem).__name__]
            raise DataError(
                f"{self.dataset}: its part {name} cannot be loaded ({lines[0]}); accepted: a data set that "
                "datasets.load_dataset loads on this machine, or a folder that save_to_disk wrote"
            ) from problem


SOURCE = HuggingFace
