"""Says what of a data set is not read: `volary data check` prints them, a run warns before its first step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from volary.data.datasets.stream import Stream
    from volary.data.samples import Samples

_NAMED = 5  # in a sentence


@runtime_checkable
class WithRemarks(Protocol):
    """Samples that say what of their files is not among them."""

    @property
    def remarks(self) -> Sequence[str]:
        """Sentences, each with its file or folder."""
        ...


def remarks_of(samples: Samples | Stream) -> tuple[str, ...]:
    """The remarks of the samples, if they have any."""
    return tuple(samples.remarks) if isinstance(samples, WithRemarks) else ()


def not_read(where: object, kind: str, names: Sequence[str]) -> tuple[str, ...]:
    """The remark on parts of `where` that are left out: "x.csv: 2 columns are not read: id, name". kind: what one is.

    Nothing for no names.
    """
    if not names:
        return ()
    count = f"1 {kind} is" if len(names) == 1 else f"{len(names):,} {kind}s are"
    return (f"{where}: {count} not read: {listed(names)}",)


def listed(names: Sequence[str]) -> str:
    """Some names for a message; what cannot be printed is escaped, and long ones are cut."""
    shown = [_printable(name) for name in names[:_NAMED]]
    return ", ".join([*shown, "..."] if len(names) > _NAMED else shown)


def _printable(name: str) -> str:
    name = name if len(name) <= 60 else f"{name[:57]}..."
    return name if name.isprintable() else repr(name)
