"""A session's text with settings changed in it, as somebody would: comments and order stay."""

from __future__ import annotations

import io
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from volary.session.reading.overrides import apply
from volary.session.reading.problems import Problems
from volary.session.reading.yaml_file import read_text
from volary.session.spec import Session

_WIDE = 4096  # no line is broken that was not


def changed(text: str, overrides: Sequence[str]) -> str:
    """The text of a session file with the overrides written into it; as it is, if it or one of them cannot be read."""
    problems = Problems()
    root = read_text(text, "", Path.cwd(), problems) if overrides else None
    if root is None:
        return text
    before = root.plain()
    apply(root, overrides, Session, problems)
    if problems.found:
        return text
    after = root.plain()
    return _edited(text, before, after) if after != before else text


def _edited(text: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The text, edited; or, where an edit says something else, as with an alias, written anew."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    yaml = YAML(typ="rt", pure=True)  # makes plain values, and no objects of a tag
    yaml.preserve_quotes, yaml.width = True, _WIDE
    yaml.indent(mapping=2, sequence=4, offset=2)
    try:
        document = yaml.load(text)
        _replace(document, before, after)
        found = _written(yaml, document)
    except YAMLError:
        found = ""
    problems = Problems()
    root = read_text(found, "", Path.cwd(), problems)
    return found if root is not None and root.plain() == after else _written(yaml, after)


def _written(yaml: Any, document: Any) -> str:
    written = io.StringIO()
    yaml.dump(document, written)
    return written.getvalue()


def _replace(document: MutableMapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Change what differs, and nothing else."""
    for name in before.keys() - after.keys():
        del document[name]
    for name, value in after.items():
        if name in before and before[name] == value and type(before[name]) is type(value):
            continue
        if isinstance(value, dict) and isinstance(before.get(name), dict):
            _replace(document[name], before[name], value)
        else:
            document[name] = value
