"""Lists image files to predict from: one file, or all in a folder and the folders in it, by name."""

from __future__ import annotations

from pathlib import Path

from volary.data.decoding.images import SUFFIXES
from volary.data.formats.files import existing_file, existing_folder
from volary.data.records.files import Files
from volary.errors import DataError

_ACCEPTED = "an image file, or a folder of them (" + ", ".join(sorted(SUFFIXES)) + ")"


def image_files(given: Path) -> tuple[Files, list[str]]:
    """Find the files, and their names below the folder. What begins with a dot is left out. Raises DataError if there
    are none.
    """
    if not given.is_dir():
        existing_file(given, _ACCEPTED)
        if given.suffix.lower() not in SUFFIXES:
            raise DataError(f"{given}: is no image by its name; accepted: {_ACCEPTED}")
        return Files(given.parent, [given.name]), [given.name]
    existing_folder(given, _ACCEPTED)
    found = [one.relative_to(given) for one in given.rglob("*")]
    shown = [one for one in found if not any(part.startswith(".") for part in one.parts)]
    names = [str(one) for one in sorted(shown) if one.suffix.lower() in SUFFIXES]
    if not names:
        raise DataError(f"{given}: has no image in it; accepted: {_ACCEPTED}")
    return Files(given, names), names
