"""A user's own data set, named as "package.module:Factory" or handed in as an object."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from volary.errors import CorruptSample, DataError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from volary.data.datasets.stream import Stream
    from volary.data.samples import Samples, Split
    from volary.session.values.reference import UserObject

TAKES_NONE = "takes no `split`"
_ONE_AT_A_TIME = threading.RLock()  # code of data sets: several may share what is not safe to use in two threads


@dataclass(frozen=True, kw_only=True)
class UserSource:
    """A data set that `reference` names, or that a callable there makes of `arguments` and, if it takes it, `split`.

    load: imports it. It is called by `open` alone, so that `check` runs no code of the user.
    """

    reference: str
    load: Callable[[], Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Check nothing: that would run the user's code."""

    def count(self, split: Split) -> None:
        """Unknown without running the user's code."""

    def open(self, split: Split) -> Samples | Stream:
        """The user's data set as samples. Raises DataError if it is none, is empty or has no such split."""
        with _ONE_AT_A_TIME:
            dataset = self._made(split)
        if dataset is None:
            raise DataError(f"{self.reference}: gave None for split {split!r}; accepted: a data set")
        return samples_of(dataset, self.reference)

    def _made(self, split: Split) -> Any:
        factory = self.load()
        if not callable(factory):
            self._only_train(split, "is one data set, not a callable")
            return factory
        parameters = inspect.signature(factory).parameters
        if "split" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            return factory(**self.arguments, split=split)
        self._only_train(split, TAKES_NONE)
        return factory(**self.arguments)

    def _only_train(self, split: Split, why: str) -> None:
        # evaluating on the training part would look like a fine result
        if split != "train":
            raise _no_validation(self.reference, why)


def refuse_one_part(source: UserObject) -> None:
    """Raise DataError if the source is seen, without running it, to have no validation data."""
    if source.takes("split") is False:
        raise _no_validation(source.name, TAKES_NONE)


def _no_validation(reference: str, why: str) -> DataError:
    return DataError(
        f"{reference}: {why}, so there is no validation data to evaluate on; accepted: a callable with a parameter "
        '`split` ("train" or "test"), or the setting evaluate.every=never'
    )


def samples_of(dataset: Any, name: str) -> Samples | Stream:
    """A torch data set, map style or iterable, as samples; one that has `fetch` is taken as it is.

    name: what to call it in a message. Raises DataError if it is neither, or empty.
    """
    import torch
    from torch.utils.data import IterableDataset, TensorDataset

    from volary.data.datasets.stream import Stream
    from volary.data.datasets.stream_shards import IterableInShards
    from volary.data.memory import InMemory

    if hasattr(dataset, "fetch") and hasattr(dataset, "input_shape"):
        _refuse_empty(dataset, name)
        return cast("Samples", dataset)
    if isinstance(dataset, TensorDataset) and len(dataset.tensors) == 2:
        _refuse_empty(dataset, name)
        inputs, targets = dataset.tensors
        weights = getattr(dataset, "weights", None)
        return InMemory(
            inputs,
            targets,
            _classes(dataset),
            class_names=_class_names(dataset),
            weights=None if weights is None else torch.as_tensor(weights),
        )
    # asked first: torch's has a __getitem__ that only raises
    streams = isinstance(dataset, IterableDataset)
    if not streams and hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        _refuse_empty(dataset, name)
        return MapSamples(dataset, name, _classes(dataset))
    if hasattr(dataset, "__iter__") or isinstance(dataset, IterableInShards):
        return Stream(dataset, name, _classes(dataset), _class_names(dataset))
    raise DataError(
        f"{name}: is a {type(dataset).__name__}; accepted: a data set with __getitem__ and __len__, or with __iter__"
    )


class MapSamples:
    """Samples of a map-style data set: `dataset[i]` is a pair of tensors, arrays or numbers.

    weights, targets: of each sample, if the data set says them.
    """

    block, scale = 1, None
    lengths: Tensor  # there if the data set says them, and samples may differ

    def __init__(self, dataset: Any, name: str, classes: int | None) -> None:
        from volary.data.batching.collate import collate
        from volary.data.datasets.fetched_ahead import FetchedAhead

        self.classes, self.class_names = classes, _class_names(dataset)
        self.weights, self.targets = getattr(dataset, "weights", None), getattr(dataset, "targets", None)
        self._dataset, self._name, self._collate = dataset, name, collate
        self._pad, self._check_filled = False, cast("Callable[[Tensor], None] | None", None)
        # one is read now: its shape is needed before the first step
        number, sample = self._first()
        first = collate([sample], [number], name)
        self._nothing = first[0][:0], first[1][:0]
        self._batches = FetchedAhead(self._sample, self._collated, name)

    def __len__(self) -> int:
        return len(self._dataset)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self._nothing[0].shape[1:])

    @property
    def input_dtype(self) -> torch.dtype:
        return self._nothing[0].dtype

    def let_differ(self, check_filled: Callable[[Tensor], None] | None) -> None:
        """Fill up samples that are smaller than others of their batch. `lengths` of the data set: of each."""
        self._pad, self._check_filled = True, check_filled
        if (lengths := getattr(self._dataset, "lengths", None)) is not None:
            import torch

            self.lengths = torch.as_tensor(lengths)

    def fetch(self, indices: Tensor, epoch: int = 0) -> tuple[Tensor, Tensor]:
        """Ask the data set for each of the samples and stack them."""
        return self._batches.take(indices.tolist()) if len(indices) else self._nothing

    def take(self, indices: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        return self.fetch(indices, epoch)

    def prefetch(self, indices: Tensor, epoch: int) -> bool:
        return not len(indices) or self._batches.prefetch(indices.tolist())

    def _collated(self, samples: Sequence[Any], numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        return self._collate(samples, numbers, self._name, pad=self._pad, check_filled=self._check_filled)

    def _first(self) -> tuple[int, Any]:
        """The first sample that can be read, and its number. Raises CorruptSample if there is none."""
        for number in range(len(self)):
            try:
                return number, self._sample(number)
            except CorruptSample:
                if number == len(self) - 1:
                    raise
        raise AssertionError("it is not empty")

    def _sample(self, number: int) -> Any:
        try:
            with _ONE_AT_A_TIME:
                return self._dataset[number]
        except CorruptSample as problem:
            problem.index = number
            raise
        except Exception as error:  # the user's code may raise anything
            error.add_note(f"while sample {number} of {self._name} was read")
            raise


def _refuse_empty(dataset: Any, name: str) -> None:
    if len(dataset) == 0:
        raise DataError(f"{name}: empty: its length is 0; accepted: at least one sample")


def _class_names(dataset: Any) -> tuple[str, ...]:
    """The names that the data set says in `classes`, if it does."""
    classes = getattr(dataset, "classes", None)
    return tuple(map(str, classes)) if isinstance(classes, (list, tuple)) else ()


def _classes(dataset: Any) -> int | None:
    """Read `classes` of the data set (a number, or a list of names as torchvision has it)."""
    classes = getattr(dataset, "classes", None)
    if isinstance(classes, (list, tuple)):
        return len(classes)
    return classes if isinstance(classes, int) else None
