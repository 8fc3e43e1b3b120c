"""WebDataset's convention: neighbours in a tar whose names are the same up to the first dot are one sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from volary.data.formats.archive import Archive, ArchiveMember
from volary.data.records.unread import Unread
from volary.errors import DataError

_LABEL_BYTES = 4096  # of a label, at most
_ACCEPTED = "a line of UTF-8 text: a number or a name"


class TarSample(NamedTuple):
    """The image of a sample, and what its label says."""

    image: ArchiveMember
    label: str


def tar_samples(archive: Archive, images: Sequence[str], target: str, unread: Unread) -> Iterator[TarSample]:
    """The samples of a tar. images: endings that the image may have, target: that of the label.

    Raises DataError for a sample that lacks one of them or has one twice, and for a label that is none.
    """
    for key, parts in _grouped(archive, unread):
        ending = next((one for one in images if one in parts), None)
        if ending is None or target not in parts:
            lacks = f".{target}" if ending else f"image (.{', .'.join(images)})"
            raise DataError(f"{archive.path}:{key}: has no {lacks}; it has .{', .'.join(parts)}")
        for other in parts:
            if other not in (ending, target):
                unread.add(f".{other}", "member", "beside images and labels")
        yield TarSample(parts[ending], _label(archive, parts[target]))


def _grouped(archive: Archive, unread: Unread) -> list[tuple[str, dict[str, ArchiveMember]]]:
    """Neighbours with one key, by their endings."""
    samples: list[tuple[str, dict[str, ArchiveMember]]] = []
    keys: set[str] = set()
    for member in archive.members:
        stem, _, ending = member.name.name.partition(".")
        if not stem or not ending:
            unread.add(str(member.name), "member", "whose name begins with a dot" if not stem else "without an ending")
            continue
        key = str(member.name.parent / stem)
        if not samples or samples[-1][0] != key:
            if key in keys:
                raise DataError(
                    f"{archive.path}:{key}: is there twice, with others between; accepted: each sample once, its files "
                    "one after the other"
                )
            keys.add(key)
            samples.append((key, {}))
        if samples[-1][1].setdefault(ending.lower(), member) is not member:
            raise DataError(f"{archive.path}:{member.name}: is there twice; accepted: each file of a sample once")
    return samples


def _label(archive: Archive, member: ArchiveMember) -> str:
    content = archive.read(member.offset, min(member.size, _LABEL_BYTES + 1))
    try:
        text = content.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        text = ""
    if not text or len(content) > _LABEL_BYTES or len(text.splitlines()) > 1:
        raise DataError(f"{archive.path}:{member.name}: holds no label; accepted: {_ACCEPTED}")
    if text[0] in "{[":  # all of it would be the name of a class, which hardly any other sample has
        raise DataError(f"{archive.path}:{member.name}: holds JSON; accepted: {_ACCEPTED}")
    return text
