"""The settings that all sources of image files share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Self

from volary.errors import DataError, SettingError
from volary.session.reading.choice import Choice
from volary.session.values.reference import UserObject

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from torch import Tensor

    from volary.data.data_names import DataNames
    from volary.data.decoding.decoder import Decoder
    from volary.data.loading.pipeline import Pipeline
    from volary.data.loading.scale import Scale
    from volary.data.records.records import Bytes, Records
    from volary.data.samples import Split
    from volary.data.unlabelled.unlabelled import Unlabelled


@dataclass(frozen=True, kw_only=True)
class ImageSettings:
    """An image becomes (channels, height, width) in float32, (value / 255 - mean) / std."""

    size: int | None = None  # side in pixels to which each image is resized; none: all have one size already
    channels: int = 3  # 3: colour, 1: grey
    mean: tuple[float, ...] = (0.0,)  # taken off each value (0 to 1): one number, or one per channel
    std: tuple[float, ...] = (1.0,)  # divides after that: one number, or one per channel
    transforms: tuple[Annotated[Any, Choice("volary.data.transforms", user=True)], ...] = ()  # of the training part
    test_transforms: tuple[Annotated[Any, Choice("volary.data.transforms", user=True)], ...] = ()  # of validation data
    seed: int = 0  # of what is random in transforms
    cache_mb: int = 1024  # keep decoded images in memory if all of a part fit into so many MiB per worker; 0: never

    def __post_init__(self) -> None:
        if self.size is not None and not 1 <= self.size <= 4096:
            raise SettingError(f"size is {self.size}; accepted: 1 to 4096")
        if self.channels not in (1, 3):
            raise SettingError(f"channels is {self.channels}; accepted: 1 (grey), 3 (colour)")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, self.channels):
                raise SettingError(f"{name} has {len(values)} numbers; accepted: 1, or one per channel")
        if min(self.std) <= 0:
            raise SettingError(f"std is {self.std}; accepted: above 0")
        if not 0 <= self.seed < 2**63:
            raise SettingError(f"seed is {self.seed}; accepted: a whole number from 0 to 2**63 - 1")
        if self.cache_mb < 0:
            raise SettingError(f"cache_mb is {self.cache_mb}; accepted: 0 or more")

    def as_validation(self) -> Self:
        """The same settings, with transforms of validation data for all."""
        return replace(self, transforms=self.test_transforms)

    def scale(self) -> Scale:
        """Return the scale that makes inputs of decoded bytes: a mean and a deviation for each channel."""
        import torch

        from volary.data.loading.scale import Scale

        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        return Scale(1 / (255 * std), -mean / std)

    def unlabelled(self, given: Path, known: DataNames) -> Unlabelled:
        """Image files, prepared as validation data is. Raises DataError if there are none."""
        import torch

        from volary.data.unlabelled.image_files import image_files
        from volary.data.unlabelled.unlabelled import Unlabelled

        files, names = image_files(given)
        nobody = torch.zeros(len(names), dtype=torch.int64)
        return Unlabelled(replace(self, cache_mb=0).decoded(files, nobody, None, "test"), names.__getitem__)

    def prepared(self, contents: Sequence[Bytes], name: Callable[[int], str]) -> Tensor:
        """Inputs (n, channels, height, width) of files at hand, as of validation data. name: of one, in a message.

        Raises CorruptSample for one that cannot be read.
        """
        import torch

        from volary.data.records.in_memory import InHand

        records, nobody = InHand(contents.__getitem__, len(contents), name), torch.zeros(len(contents))
        inputs, _ = replace(self, cache_mb=0).decoded(records, nobody, None, "test").fetch(torch.arange(len(contents)))
        return inputs

    def decoded(
        self, records: Records, targets: Tensor, classes: int | None, split: Split, decoder: Decoder | None = None
    ) -> Pipeline:
        """Samples of image files. decoder: another one than for files."""
        from volary.data.decoding.images import ImageDecoder
        from volary.data.loading.pipeline import Pipeline
        from volary.data.loading.transforming import Prepared, UserTransform, Varied, divided

        decoder = decoder or ImageDecoder(self.channels, self.size)
        chosen = self.transforms if split == "train" else self.test_transforms
        transforms = [_loaded(transform) for transform in chosen]
        always, others = divided(transforms)
        return Pipeline(
            records,
            targets,
            classes,
            Prepared(decoder, always) if always else decoder,
            self.scale(),
            vary=Varied(others, self.seed) if others else None,
            cache_bytes=self.cache_mb * 2**20,
            own_code=any(isinstance(transform, UserTransform) for transform in transforms),
        )


def _loaded(transform: Any) -> Any:
    """A transform; of the user's code, what the name says, or what it makes of its arguments."""
    from volary.data.loading.transforming import UserTransform

    if not isinstance(transform, UserObject):
        return transform
    function = transform.load()
    if transform.arguments:
        function = function(**transform.arguments)
    if not callable(function):
        raise DataError(f"{transform.name}: is a {type(function).__name__}; accepted: a callable (image, random)")
    return UserTransform(transform.name, function)
