"""A part of one of torchvision's data sets: its images as files in memory, and a class for each."""

from __future__ import annotations

import fcntl
import inspect
import io
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from PIL import Image

from volary.data.formats.extras import needed
from volary.errors import DataError, SettingError
from volary.session.reading.problems import unknown

if TYPE_CHECKING:
    from volary.data.samples import Split

_LABELS = ("targets", "labels", "_labels", "y")  # what its data sets call the classes of all samples
_PAIRS = ("samples", "_samples")  # the same of pairs of a file and its class
_OTHERS = "accepted: a data set of images with a class each; any other as a data set of your own"
_PLAIN = {"L": 5, "RGB": 6}  # by mode, what a file of its bytes begins with


class VisionSettings(Protocol):
    """The settings that say which part it is, see `volary.data.sources.torchvision`."""

    @property
    def dataset(self) -> str: ...
    @property
    def root(self) -> str: ...
    @property
    def train(self) -> str: ...
    @property
    def test(self) -> str: ...
    @property
    def download(self) -> bool: ...
    @property
    def arguments(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, eq=False)
class VisionPart:
    """targets: of each image, its class. class_names: by number; none: classes are numbers.

    dataset: torchvision's, which is asked for one image at a time: nothing says that several threads may ask.
    """

    called: str
    dataset: Any
    targets: list[int]
    class_names: tuple[str, ...]
    _asking: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, settings: VisionSettings, split: Split) -> VisionPart:
        """Open a part. Raises DataError if it is not there, or not of images with a class each; SettingError for a name
        that torchvision does not have, and if it cannot be imported.
        """
        called = f"torchvision's {settings.dataset}"
        dataset = _opened(settings, split, called)
        if not hasattr(dataset, "__len__") or len(dataset) == 0:
            raise DataError(f"{called}: its {split} part is empty; accepted: at least one image")
        targets, names = _targets(dataset, called), getattr(dataset, "classes", None)
        if min(targets) < 0:
            raise DataError(f"{called}: an image of its {split} part has no class ({min(targets)}); {_OTHERS}")
        known = isinstance(names, list | tuple) and len({*map(str, names)}) == len(names) > max(targets)
        return cls(called, dataset, targets, tuple(map(str, names)) if known and names else ())

    @property
    def classes(self) -> int:
        """How many classes there are, as far as this part knows."""
        return len(self.class_names) or max(self.targets) + 1

    def name(self, index: int) -> str:
        """The name of a sample in a message."""
        return f"sample {index} of {self.called}"

    def image(self, index: int) -> bytes:
        """The image as a file, whose pixels are not compressed if they are grey or colours."""
        with self._asking:
            image: Image.Image = self.dataset[index][0]
        if image.mode in _PLAIN:
            return b"P%d %d %d 255\n" % (_PLAIN[image.mode], *image.size) + image.tobytes()
        file = io.BytesIO()
        image.save(file, "PNG")
        return file.getvalue()


def _opened(settings: VisionSettings, split: Split, called: str) -> Any:
    try:
        library = needed("torchvision.datasets", "torchvision")
    except RuntimeError as problem:  # it looks for operators that only its own build of torch has
        raise SettingError(f"torchvision cannot be imported ({problem}); accepted: a build for this torch") from problem
    kinds = [name for name in library.__all__ if isinstance(getattr(library, name), type)]
    if settings.dataset not in kinds:
        raise SettingError(f"dataset {settings.dataset!r}: {unknown(settings.dataset, kinds)}")
    kind, root = getattr(library, settings.dataset), Path(settings.root).expanduser()
    taken = _taken(kind)
    given = {**settings.arguments, **_of_part(settings, split, taken, called)}
    if "download" in taken:
        given["download"] = settings.download
    elif settings.download:
        raise SettingError(f"download is true, and {called} is not downloaded by torchvision; accepted: false")
    if "root" in taken:
        given["root"] = str(root)
    try:
        with _alone(root) if settings.download else nullcontext():
            return kind(**given)
    except Exception as problem:  # of many kinds, as files are missing, damaged, or arguments are wrong
        reason = (str(problem).splitlines() or [type(problem).__name__])[0].rstrip(".")
        instead = "" if settings.download or "download" not in taken else ", or the setting download=true"
        raise DataError(
            f"{called}: cannot be opened in {root} ({reason}); accepted: its files there, as torchvision has them"
            f"{instead}"
        ) from problem


def _of_part(settings: VisionSettings, split: Split, taken: set[str], called: str) -> dict[str, Any]:
    """The arguments that say which part is wanted. Raises DataError if there is one part, and that is another."""
    if "train" in taken:
        return {"train": split == "train"}
    if "split" in taken and "split" not in settings.arguments:
        return {"split": getattr(settings, split)}
    if split == "train":
        return {}
    raise DataError(f"{called}: has one part; accepted: data.split, which divides it, or evaluate.every=never")


def _taken(kind: type) -> set[str]:
    """The names of what a class takes, and of what it hands on to the class that it is derived from."""
    found: set[str] = set()
    for one in kind.__mro__:
        if (own := vars(one).get("__init__")) is None:
            continue
        parameters = inspect.signature(own).parameters
        found |= set(parameters)
        if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
            break
    return found


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Let no other worker of this machine download into the folder meanwhile."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".volary-download").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _targets(dataset: Any, called: str) -> list[int]:
    """The classes of all samples. Raises DataError if the first sample is no image with a class."""
    last = len(dataset) - 1
    ends = {number: _class_of(dataset[number], number, called) for number in (0, last)}
    for found in _class_lists(dataset):
        if len(found) == last + 1 and all(_number(found[number]) == end for number, end in ends.items()):
            numbers = [number for one in found if (number := _number(one)) is not None]
            if len(numbers) == len(found):
                return numbers
    return [_class_of(dataset[number], number, called) for number in range(last + 1)]


def _class_lists(dataset: Any) -> Iterator[list[Any]]:
    """The classes of the data set itself, under the names that torchvision gives to them."""
    for name in _LABELS:
        found: Any = getattr(dataset, name, None)
        if hasattr(found, "tolist"):
            found = found.tolist()
        if isinstance(found, list):
            yield found
    for name in _PAIRS:
        if isinstance(pairs := getattr(dataset, name, None), list):
            yield [pair[-1] if isinstance(pair, tuple) and pair else None for pair in pairs]


def _class_of(sample: Any, number: int, called: str) -> int:
    image, target = sample if isinstance(sample, tuple) and len(sample) == 2 else (sample, None)
    found = _number(target)
    if found is None or not isinstance(image, Image.Image):
        kinds = ", ".join(type(one).__name__ for one in (sample if isinstance(sample, tuple) else (sample,)))
        raise DataError(f"{called}: sample {number} is ({kinds}); {_OTHERS}")
    return found


def _number(target: Any) -> int | None:
    """A class as a number, however it is kept; None if it is none."""
    target = target.item() if getattr(target, "ndim", None) == 0 else target
    return target if isinstance(target, int) and not isinstance(target, bool) else None
