"""Looks at a folder of images or at a table, without a session: what is in it, and which session would read it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from volary.data.looking.image_folders import ImageFolders, image_folders
from volary.data.looking.pictures import Picture, pictures
from volary.data.looking.proposal import of_image_folders, of_table
from volary.data.looking.table_columns import Column, SeenTable, table_at
from volary.errors import DataError

PICTURES = 24


@dataclass(frozen=True, kw_only=True)
class Look:
    """The data at `path`. kind: images, or table. parts: samples by part; one alone if the data comes undivided.

    classes: samples of the training part by class. columns: of a table, of which `target` is to be predicted.
    session: text of a session that trains on it; empty if none can, and then the last of `remarks` says why.
    """

    path: str
    kind: str
    parts: dict[str, int]
    classes: dict[str, int]
    target: str
    columns: tuple[Column, ...]
    pictures: tuple[Picture, ...]
    session: str
    remarks: tuple[str, ...]


def look(path: Path, target: str = "") -> Look:
    """Look at a folder of class folders, at one with a training and a test part, at a CSV, Parquet or Arrow file, or at
    a folder of such. target: the column to predict; empty: guessed. Raises DataError for anything else.
    """
    if (found := image_folders(path)) is not None:
        if target:
            raise DataError(f"{path}: a folder of images has no column {target!r}; accepted: no target")
        return _of_images(path, found)
    return _of_table(path, table_at(path, target))


def _of_images(path: Path, found: ImageFolders) -> Look:
    shown, damaged = pictures(found.records, found.spread(PICTURES), path, found.class_of)
    remarks, session = [*found.remarks, *damaged], ""
    if not shown:
        remarks.append(f"{path}: none of the images that were looked at can be read; accepted: images as Pillow reads")
    elif len(found.classes) < 2:
        remarks.append(f"{path}: has one class alone, {next(iter(found.classes))!r}; accepted: a folder for each class")
    else:
        session = of_image_folders(path, found, shown)
    return Look(
        path=str(path),
        kind="images",
        parts=found.counts,
        classes=found.classes,
        target="",
        columns=(),
        pictures=tuple(shown),
        session=session,
        remarks=tuple(remarks),
    )


def _of_table(path: Path, table: SeenTable) -> Look:
    shown, remarks = list[Picture](), list(table.remarks)
    if table.images is not None:
        count = min(PICTURES, len(table.images))
        shown, damaged = pictures(table.images, range(count), None, table.class_of)
        remarks += damaged
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
