"""NumPy arrays: one file of inputs and one of targets for each part, or one .npz with both."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from volary.data.formats.files import existing_file, existing_folder, matching
from volary.data.formats.unpacking import check_npz
from volary.data.remarks import not_read
from volary.data.samples import BOTH
from volary.data.storage.place import located
from volary.errors import DataError, SettingError
from volary.session.values.url import Location

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from volary.data.data_names import DataNames
    from volary.data.memory import InMemory
    from volary.data.samples import Split
    from volary.data.storage.place import Place
    from volary.data.unlabelled.unlabelled import Unlabelled
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
    missing: str = "refuse"  # refuse NaN and infinity, or keep them, for a network that knows what they mean

    def __post_init__(self) -> None:
        if not self.folder:
            raise SettingError("folder is empty; accepted: the folder that holds the arrays")
        if self.std <= 0:
            raise SettingError(f"std is {self.std}; accepted: above 0")
        if self.missing not in ("refuse", "keep"):
            raise SettingError(f"missing is {self.missing!r}; accepted: refuse, keep")

    def check(self, parts: Sequence[Split] = BOTH) -> None:
        """Look whether the files exist and start as NumPy's do. Raises DataError if they do not."""
        for split in parts:
            for path in set(self._files(split)):
                with path.open("rb") as file:
                    if file.read(6) not in (b"\x93NUMPY", b"PK\x03\x04\x2d\x00", b"PK\x03\x04\x14\x00"):
                        raise DataError(f"{path}: does not start as NumPy's files do; accepted: {_ACCEPTED}")

    def count(self, split: Split) -> None:
        """Unknown before the arrays are opened."""

    def open(self, split: Split) -> InMemory:
        """Map the arrays into memory (a .npz is read). Raises DataError for what has no rows of numbers."""
        import torch

        inputs, targets = self._inputs(split), self._targets(split)
        if not len(inputs) or len(inputs) != len(targets):
            raise DataError(
                f"{self._files(split)[0]}: {len(inputs)} inputs and {len(targets)} targets; "
                "accepted: as many of one as of the other, at least one"
            )
        if not inputs[:1].size:
            raise DataError(f"{self._files(split)[0]}: a row of {self.inputs} has no value; accepted: at least one")
        if split == "test":
            self._refuse_others()
        classes = self._classes(split, targets) if targets.dtype.kind == "i" and targets.ndim == 1 else None
        rows = self._prepared(torch.from_numpy(inputs), torch.from_numpy(targets))
        return replace(rows, classes=classes, remarks=self._remarks(split))

    def unlabelled(self, given: Path, known: DataNames) -> Unlabelled:
        """Rows of a .npy, which is mapped, or of the array of inputs in a .npz."""
        import torch

        from volary.data.formats.numbers import refuse_not_finite
        from volary.data.unlabelled.array_file import rows_of
        from volary.data.unlabelled.unlabelled import Unlabelled

        array = rows_of(given, self.inputs)
        if array.dtype.kind == "f" and self.missing == "refuse":
            refuse_not_finite(array, lambda at: f"{given}: row {at // array[:1].size}")
        return Unlabelled(self._prepared(torch.from_numpy(array), torch.zeros(len(array), dtype=torch.int64)))

    def _prepared(self, inputs: Tensor, targets: Tensor) -> InMemory:
        """The rows as the network gets them."""
        from volary.data.memory import InMemory

        scale = 1 / (255 * self.std) if str(inputs.dtype) == "torch.uint8" else None
        return InMemory(inputs, targets, None, scale, -self.mean / self.std)

    def _refuse_others(self) -> None:
        """Raise DataError if rows of the validation data are not as those of the training part."""
        for number, name in enumerate(self._names):
            mine, first = (_row(self._array(split, name), scaled=not number) for split in ("test", "train"))
            if mine != first:
                test, train = (self._files(split)[number] for split in ("test", "train"))
                raise DataError(f"{test}: a row of {name} is {mine}; accepted: {first}, as in {train}")

    def _inputs(self, split: Split) -> NDArray[Any]:
        """The inputs as they are, but in a byte order and precision that torch has."""
        from volary.data.formats.numbers import as_float32, native

        array = native(self._array(split, self.inputs))
        if array.dtype.kind == "f" and array.dtype.itemsize > 4:
            array = as_float32(array, self._place_of(split, self.inputs, array))
        return self._looked_through(split, self.inputs, array)

    def _targets(self, split: Split) -> NDArray[Any]:
        """Whole numbers as int64, others as float32."""
        import numpy as np

        from volary.data.formats.numbers import as_float32

        array = self._array(split, self.targets)
        place_of = self._place_of(split, self.targets, array)
        if array.dtype.kind != "f":
            if array.size and array.dtype.itemsize == 8 and array.max() > np.iinfo(np.int64).max:
                at = int(array.argmax())
                raise DataError(f"{place_of(at)} is {array.max()}; accepted: whole numbers below 2**63")
            return array.astype(np.int64)
        return self._looked_through(split, self.targets, np.array(as_float32(array, place_of)))

    def _looked_through(self, split: Split, name: str, array: NDArray[Any]) -> NDArray[Any]:
        """The array, if all of it may be. Raises DataError otherwise."""
        from volary.data.formats.numbers import refuse_not_finite

        if array.dtype.kind == "f" and self.missing == "refuse":
            refuse_not_finite(array, self._place_of(split, name, array))
        return array

    def _place_of(self, split: Split, name: str, array: NDArray[Any]) -> Callable[[int], str]:
        path = self._files(split)[self._names.index(name)]
        return lambda at: f"{path}: row {at // max(1, array[:1].size)} of {name}"

    def _remarks(self, split: Split) -> tuple[str, ...]:
        """Remarks on what else is in the folder, and in the part's .npz."""
        folder = located(self.folder)
        read = [*self._paths(folder, "train"), *self._paths(folder, "test")]
        remarks = not_read(folder, "file", [path.name for path in matching(folder, "*") if path not in read])
        path = self._files(split)[0]
        if path.suffix != ".npz":
            return remarks
        return (*remarks, *not_read(path, "array", [name for name in _arrays_of(path) if name not in self._names]))

    def _classes(self, split: Split, targets: NDArray[Any]) -> int:
        """How many there are in the training part. Raises DataError for a target beyond them."""
        from volary.data.formats.labels import MOST_CLASSES

        training = targets if split == "train" else self._targets("train")
        largest = min(int(training.max()), MOST_CLASSES - 1)
        wrong = (targets < 0) | (targets > largest)
        if wrong.any():
            row = int(wrong.argmax())
            place = self._place_of(split, self.targets, targets)(row)
            raise DataError(f"{place} is {targets[row]}; accepted: a class, 0 to {max(0, largest)}")
        return largest + 1

    @property
    def _names(self) -> tuple[str, str]:
        return self.inputs, self.targets

    def _files(self, split: Split) -> list[Place]:
        folder = existing_folder(located(self.folder), "a folder of arrays")
        return [existing_file(path, f"it, or {split}.npz") for path in self._paths(folder, split)]

    def _paths(self, folder: Place, split: Split) -> list[Place]:
        packed = folder / f"{split}.npz"
        if packed.exists():
            return [packed, packed]
        return [folder / f"{split}_{name}.npy" for name in self._names]

    def _array(self, split: Split, name: str) -> NDArray[Any]:

        path = self._files(split)[self._names.index(name)]

        try:
            if path.suffix == ".npy":
                array, end = _mapped(path) if isinstance(path, Path) else _loaded(path)
                if end < path.stat().st_size:
                    raise DataError(f"{path}: more follows after its array of {end} bytes; accepted: one array a file")
            else:
                with path.open("rb", buffering=2**22) as file:
                    check_npz(file, path)
                    array = _of_npz(file, path, name)
        except DataError:
            raise
        except Exception as problem:  # foreign bytes: whatever
            raise DataError(f"{path}: cannot be read ({problem}); accepted: {_ACCEPTED}") from problem
        if array.ndim == 0 or array.dtype.kind not in "biuf":
            raise DataError(f"{path}: {name} is {array.dtype} of {array.ndim} dimensions; accepted: rows of numbers")
        return array


def _of_npz(file: IO[bytes], path: Place, name: str) -> NDArray[Any]:
    import numpy as np

    with np.load(file, allow_pickle=False) as opened:
        if name not in opened.files:
            raise DataError(f"{path}: has no array {name!r}; it has {', '.join(opened.files)}")
        array: NDArray[Any] = opened[name]
    return array


def _row(array: NDArray[Any], *, scaled: bool) -> str:
    """Kind and shape of a row. scaled: whether bytes are, which makes them another kind than whole numbers."""
    kind = (
        "floats" if array.dtype.kind == "f" else "bytes" if scaled and array.dtype.name == "uint8" else "whole numbers"
    )
    return f"{kind} {array.shape[1:]}"


def _arrays_of(path: Place) -> list[str]:
    """The names of the arrays in a .npz."""
    with path.open("rb") as file, zipfile.ZipFile(file) as arrays:
        return [name.removesuffix(".npy") for name in arrays.namelist()]


def _mapped(path: Path) -> tuple[NDArray[Any], int]:
    """The array, and where it ends in the file."""
    import numpy as np

    # copy on write: torch takes no memory that cannot be written; nothing writes it
    array = np.load(path, mmap_mode="c", allow_pickle=False)
    return array, array.offset + array.nbytes


def _loaded(path: RemotePath) -> tuple[NDArray[Any], int]:
    """Load all of an array from a store, likewise."""
    import numpy as np

    content = io.BytesIO(path.read_bytes())
    array: NDArray[Any] = np.load(content, allow_pickle=False)
    return array, content.tell()


SOURCE = Arrays
