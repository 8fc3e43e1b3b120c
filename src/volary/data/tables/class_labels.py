"""Names of classes that are numbers in a table: Hugging Face's data sets keep the names in a file's metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping


def class_labels(metadata: Mapping[bytes, bytes] | None, column: str) -> tuple[str, ...]:
    """The names of a column's classes, by number; none if the metadata of the schema does not say them."""
    try:
        feature = json.loads((metadata or {})[b"huggingface"])["info"]["features"][column]
        return tuple(map(str, feature["names"])) if feature["_type"] == "ClassLabel" else ()
    except (KeyError, TypeError, ValueError):  # metadata of something else
        return ()
