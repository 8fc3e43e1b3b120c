"""Looks at data without a session: what is in it, and which session would read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from volary.data.looking.array_files import SeenArrays, arrays_at
from volary.data.looking.class_folders import ClassFolders, class_folders
from volary.data.looking.pictures import Picture, pictures
from volary.data.looking.proposal import of_arrays, of_image_folders, of_sound_folders, of_table, of_text
from volary.data.looking.sounds import sounds
from volary.data.looking.table_columns import Column, SeenTable, table_at
from volary.data.looking.texts import SeenText, text_at
from volary.data.tables.arrow_file import SUFFIXES as ARROW
from volary.errors import DataError

PICTURES = 24
NAMED = 3  # damaged samples that are named


@dataclass(frozen=True, kw_only=True)
class Look:
    """The data at `path`. kind: images, sounds, table, arrays or text. parts: samples by part; one alone if the data
    comes undivided; none of text, of which `facts` count symbols and lines.

    classes: samples of the training part by class. columns: of a table, or arrays; `target` is to be predicted.
    excerpt: of text, its beginning. session: text of a session that trains on it; empty if none can, and then the last
    of `remarks` says why.
    """

    path: str
    kind: str
    parts: dict[str, int]
    classes: dict[str, int] = field(default_factory=dict)
    target: str = ""
    columns: tuple[Column, ...] = ()
    pictures: tuple[Picture, ...] = ()
    facts: dict[str, int] = field(default_factory=dict)
    excerpt: str = ""
    session: str
    remarks: tuple[str, ...]


def look(path: Path, target: str = "") -> Look:
    """Look at a folder of class folders, at one with a training and a test part, at a CSV, Parquet or Arrow file, or at
    a folder of such, at arrays, or at text. target: the column, or the array, to predict; empty: guessed.

    Raises DataError for anything else.
    """
    if (found := class_folders(path)) is not None:
        _refuse_target(path, f"a folder of {found.kind}", target)
        return _of_images(path, found) if found.kind == "images" else _of_sounds(path, found)
    if path.exists() and (arrays := arrays_at(path, target)) is not None:
        return _of_arrays(path, arrays)
    if path.exists() and not _has_table(path) and (text := text_at(path)) is not None:
        _refuse_target(path, "text", target)
        return _of_text(path, text)
    return _of_table(path, table_at(path, target))


def _refuse_target(path: Path, kind: str, target: str) -> None:
    if target:
        raise DataError(f"{path}: {kind} has no column {target!r}; accepted: no target")


def _has_table(path: Path) -> bool:
    return path.is_dir() and any(one.suffix.lower() in ARROW for one in path.iterdir())


def _of_images(path: Path, found: ClassFolders) -> Look:
    shown, damaged = pictures(found.records, found.spread(PICTURES), path, found.class_of)
    why = _why_none(path, found, shown, "images as Pillow reads")
    session = "" if why else of_image_folders(path, found, shown)
    return _of_folders(path, found, shown, session, (*_first(damaged), *why))


def _of_sounds(path: Path, found: ClassFolders) -> Look:
    seen_sounds = sounds(found.records, found.spread(PICTURES), path, found.class_of)
    why, session = _why_none(path, found, seen_sounds.pictures, "WAV files"), ""
    if not why:
        session, reason = of_sound_folders(path, found, seen_sounds)
        why = [reason] if reason else []
    return _of_folders(path, found, seen_sounds.pictures, session, (*_first(seen_sounds.damaged), *why))


def _why_none(path: Path, found: ClassFolders, shown: Sequence[Picture], accepted: str) -> list[str]:
    """Why no session can train on class folders, if none can."""
    if not shown:
        return [f"{path}: none of the {found.kind} that were looked at can be read; accepted: {accepted}"]
    if len(found.classes) < 2:
        return [f"{path}: has one class alone, {next(iter(found.classes))!r}; accepted: a folder for each class"]
    return []


def _of_folders(
    path: Path, found: ClassFolders, shown: Sequence[Picture], session: str, remarks: Sequence[str]
) -> Look:
    return Look(
        path=str(path),
        kind=found.kind,
        parts=found.counts,
        classes=found.classes,
        pictures=tuple(shown),
        session=session,
        remarks=(*found.remarks, *remarks),
    )


def _of_arrays(path: Path, found: SeenArrays) -> Look:
    why = ""
    if missing := [one for one in found.columns if one.missing and one.name in (found.inputs, found.targets)]:
        why = f"{path}: {missing[0].name} has {missing[0].missing:,} values that are no numbers; accepted: numbers"
    elif len(found.classes) == 1:
        why = f"{path}: {found.targets} has one value alone; accepted: an array of two classes or more"
    return Look(
        path=str(found.folder),
        kind="arrays",
        parts=found.rows,
        classes=found.classes,
        target=found.targets,
        columns=tuple(found.columns),
        pictures=tuple(found.pictures),
        session="" if why else of_arrays(found),
        remarks=(why,) if why else (),
    )


def _of_text(path: Path, found: SeenText) -> Look:
    facts = {"files": found.files, "symbols": found.symbols, "different symbols": found.distinct, "lines": found.lines}
    return Look(
        path=str(path),
        kind="text",
        parts={},
        facts=facts,
        excerpt=found.excerpt,
        session=of_text(path, folder=path.is_dir()),
        remarks=(f"the first {found.symbols:,} symbols are counted",) if found.cut else (),
    )


def _of_table(path: Path, table: SeenTable) -> Look:
    shown, remarks = list[Picture](), list(table.remarks)
    if table.images is not None:
        count = min(PICTURES, len(table.images))
        shown, damaged = pictures(table.images, range(count), None, table.class_of)
        remarks += _first(damaged)
    session, why = of_table(path, table, shown)
    return Look(
        path=str(path),
        kind="table",
        parts={"train": table.rows},
        classes=table.classes,
        target=table.target,
        columns=tuple(table.columns),
        pictures=tuple(shown),
        session=session,
        remarks=(*remarks, *([why] if why else [])),
    )


def _first(damaged: Sequence[str]) -> list[str]:
    """The first sentences of damaged samples, and how many more there are."""
    more = len(damaged) - NAMED
    return [*damaged[:NAMED], *([f"and {more} more that cannot be read"] if more > 0 else [])]
