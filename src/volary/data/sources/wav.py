"""WAV files in class folders, as folders or as tars of them, as log-mel spectrograms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.data.formats.class_folders import check_part, part_of
from volary.data.samples import BOTH
from volary.data.storage.place import located
from volary.errors import SettingError
from volary.session.values.url import Location

if TYPE_CHECKING:
    from volary.data.loading.pipeline import Pipeline
    from volary.data.samples import Split


@dataclass(frozen=True, kw_only=True)
class Wav:
    """Spectrograms (1, mels, frames) in float32: (log power - mean) / std, in bands of the mel scale."""

    folder: Location  # holds both parts
    train: str = "train"  # the training part in it: a folder of class folders, or the same as .tar, .tar.gz or .tgz
    test: str = "test"  # the validation data in it, likewise
    rate: int = 16000  # samples a second, which all files have
    seconds: float = 1.0  # of a clip: longer ones are shortened, shorter ones filled up with silence
    mels: int = 40  # bands
    window_ms: float = 25.0  # of a frame
    hop_ms: float = 10.0  # from the start of a frame to that of the next
    cache_mb: int = 1024  # keep spectrograms in memory if all of a part fit into so many MiB per worker; 0: never

    def __post_init__(self) -> None:
        if not self.folder:
            raise SettingError("folder is empty; accepted: the folder that holds the training and the test part")
        for name in ("rate", "seconds", "mels", "window_ms", "hop_ms"):
            if getattr(self, name) <= 0:
                raise SettingError(f"{name} is {getattr(self, name)}; accepted: above 0")
        if self.cache_mb < 0:
            raise SettingError(f"cache_mb is {self.cache_mb}; accepted: 0 or more")

    def check(self, parts: Sequence[Split] = BOTH) -> None:
        for split in parts:
            check_part(part_of(located(self.folder), getattr(self, split)))

    def count(self, split: Split) -> None:
        """Unknown before the files have been listed."""

    def open(self, split: Split) -> Pipeline:
        """List the files. Raises DataError if a test file is of a class that the training part has not."""
        import torch

        from volary.data.decoding.sound import ACCEPTED, SUFFIXES, LogMel
        from volary.data.loading.pipeline import Pipeline
        from volary.data.records.classes import list_split

        parts: dict[Split, str] = {"train": self.train, "test": self.test}
        listed = list_split(located(self.folder), parts, split, SUFFIXES, ACCEPTED)
        decoder = LogMel(self.rate, self.seconds, self.mels, self.window_ms, self.hop_ms)
        targets, cache_bytes = torch.from_numpy(listed.targets), self.cache_mb * 2**20
        samples = Pipeline(listed.records, targets, len(listed.class_names), decoder, None, cache_bytes=cache_bytes)
        samples.remarks, samples.class_names = listed.remarks, listed.class_names
        return samples


SOURCE = Wav
