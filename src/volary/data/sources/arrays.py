"""NumPy arrays: one file of inputs and one of targets for each part, or one .npz with both."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from volary.data.formats.files import existing_file, existing_folder
from volary.data.formats.unpacking import check_npz
from volary.data.storage.place import located
from volary.errors import DataError, SettingError
from volary.session.values.url import Location

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from volary.data.memory import InMemory
    from volary.data.samples import Split
    from volary.data.storage.place import Place
    from volary.storage.remote_path import RemotePath

_ACCEPTED = "arrays of numbers, as numpy.save or numpy.savez write them"


@dataclass(frozen=True, kw_only=True)
class Arrays:
    """Rows of arrays. Bytes (uint8) become (value / 255 - mean) / std, other inputs stay what they are."""

    folder: Location  # holds train_inputs.npy, train_targets.npy and the same of test; or train.npz and test.npz
    inputs: str = "inputs"  # what the arrays of inputs are called
    targets: str = "targets"  # what the arrays of targets are called
    mean: float = 0.0  # taken off each byte (0 to 1)
    std: float = 1.0  # divides after that

    def __post_init__(self) -> None:
        if not self.folder:
            raise SettingError("folder is empty; accepted: the folder that holds the arrays")
        if self.std <= 0:
            raise SettingError(f"std is {self.std}; accepted: above 0")

    def check(self) -> None:
        """Look whether the files exist and start as NumPy's do. Raises DataError if they do not."""
        for split in ("train", "test"):
            for path in set(self._files(split)):
                with path.open("rb") as file:
                    if file.read(6) not in (b"\x93NUMPY", b"PK\x03\x04\x2d\x00", b"PK\x03\x04\x14\x00"):
                        raise DataError(f"{path}: does not start as NumPy's files do; accepted: {_ACCEPTED}")

    def count(self, split: Split) -> None:
        """Unknown before the arrays are opened."""

    def open(self, split: Split) -> InMemory:
        """Map the arrays into memory (a .npz is read). Raises DataError for what has no rows of numbers."""
        import numpy as np
        import torch

        from volary.data.memory import InMemory

        inputs, targets = (self._array(path, name) for path, name in zip(self._files(split), self._names, strict=True))
        if not len(inputs) or len(inputs) != len(targets):
            raise DataError(
                f"{self._files(split)[0]}: {len(inputs)} inputs and {len(targets)} targets; "
                "accepted: as many of one as of the other, at least one"
            )
        whole = np.issubdtype(targets.dtype, np.integer)
        known = targets.astype(np.int64 if whole else np.float32, copy=False)
        classes = self._classes(split, known) if whole and known.ndim == 1 else None
        if inputs.dtype == np.float64:
            inputs = inputs.astype(np.float32)
        scale = 1 / (255 * self.std) if inputs.dtype == np.uint8 else None
        shift = -self.mean / self.std
        return InMemory(torch.from_numpy(inputs), torch.from_numpy(np.array(known)), classes, scale, shift)

    def _classes(self, split: Split, targets: NDArray[Any]) -> int:
        training = targets if split == "train" else self._array(self._files("train")[1], self.targets)
        if int(targets.min()) < 0 or int(targets.max()) > int(training.max()):
            wrong = targets.min() if targets.min() < 0 else targets.max()
            raise DataError(f"{self._files(split)[1]}: has the target {wrong}; accepted: 0 to {training.max()}")
        return int(training.max()) + 1

    @property
    def _names(self) -> tuple[str, str]:
        return self.inputs, self.targets

    def _files(self, split: Split) -> list[Place]:
        folder = existing_folder(located(self.folder), "a folder of arrays")
        packed = folder / f"{split}.npz"
        if packed.exists():
            return [packed, packed]
        return [existing_file(folder / f"{split}_{name}.npy", f"it, or {packed.name}") for name in self._names]

    def _array(self, path: Place, name: str) -> NDArray[Any]:
        import numpy as np

        try:
            if path.suffix == ".npy":
                # copy on write: torch takes no memory that cannot be written; nothing writes it
                whole = np.load(path, mmap_mode="c", allow_pickle=False) if isinstance(path, Path) else _loaded(path)
                array: NDArray[Any] = whole
            else:
                with path.open("rb", buffering=2**22) as file:
                    check_npz(file, path)
                    array = _of_npz(file, path, name)
        except DataError:
            raise
        except Exception as problem:  # foreign bytes: whatever
            raise DataError(f"{path}: cannot be read ({problem}); accepted: {_ACCEPTED}") from problem
        if array.ndim == 0 or array.dtype.kind not in "biuf":
            raise DataError(f"{path}: is {array.dtype} of {array.ndim} dimensions; accepted: rows of numbers")
        return array


def _of_npz(file: IO[bytes], path: Place, name: str) -> NDArray[Any]:
    import numpy as np

    with np.load(file, allow_pickle=False) as opened:
        if name not in opened.files:
            raise DataError(f"{path}: has no array {name!r}; it has {', '.join(opened.files)}")
        array: NDArray[Any] = opened[name]
    return array


def _loaded(path: RemotePath) -> NDArray[Any]:
    """From a store, all of it."""
    import numpy as np

    array: NDArray[Any] = np.load(io.BytesIO(path.read_bytes()), allow_pickle=False)
    return array


SOURCE = Arrays
