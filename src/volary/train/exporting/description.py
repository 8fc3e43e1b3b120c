"""The description that goes with an exported file: classes, columns, shapes, and how inputs are prepared."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from volary.session.values.reference import UserObject, name_of
from volary.session.values.url import Url

if TYPE_CHECKING:
    from volary.train.predicting.predictor import Predictor


def description(predictor: Predictor, labels: dict[str, str]) -> dict[str, str]:
    """Texts by name; what is not text is JSON. labels: which run and step it is. Paths of this machine are left out."""
    names = predictor.names
    source: Any = predictor.session.data.source
    preparation = {"source": name_of(source)} | ({} if isinstance(source, UserObject) else _settings(source))
    return labels | {
        "input_shape": json.dumps(predictor.input_shape),
        "class_names": json.dumps(predictor.classes, ensure_ascii=False),
        "columns": json.dumps(names.columns, ensure_ascii=False),
        "column_statistics": json.dumps(names.statistics),
        "preprocessing": json.dumps(preparation, ensure_ascii=False),
    }


def _settings(value: Any) -> Any:
    """A plug-in's settings as plain values, without paths."""
    if is_dataclass(value) and not isinstance(value, UserObject):
        own = {field.name: getattr(value, field.name) for field in fields(value)}
        kept = {name: _settings(one) for name, one in own.items() if not isinstance(one, Path | Url)}
        return {"name": name_of(value)} | kept
    if isinstance(value, list | tuple):
        return [_settings(one) for one in value]
    return value if isinstance(value, bool | int | float | str | None) else str(value)
