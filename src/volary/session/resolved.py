"""The resolved session: every setting with its value, as YAML that reads back to an equal session."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from math import isfinite
from typing import Any, get_args

from volary.session.reading.choice import Choice
from volary.session.reading.fields import settings_of
from volary.session.reading.node import join
from volary.session.reading.words import choice_in
from volary.session.values.reference import UserObject

BARE = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*|[0-9]+ (?:step|epoch)s?", re.ASCII)
WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}


def plain(value: Any, hint: Any = Any) -> Any:
    """A section, plug-in or setting as dicts, lists and scalars; `hint` is the field's type."""
    if value is not None and (choice := choice_in(hint)):
        return _plain_choice(value, choice)
    if isinstance(value, Mapping):
        return {str(name): plain(child) for name, child in value.items()}
    if isinstance(value, (list, tuple)):
        each = get_args(hint)[0] if get_args(hint)[1:] == (Ellipsis,) else Any
        return [plain(child, each) for child in value]
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    if is_dataclass(value) and not hasattr(value, "parse"):
        return plain_settings(value)
    return str(value)


def plain_settings(value: Any) -> dict[str, Any]:
    """The dataclass fields of a section or plug-in, plain."""
    return {name: plain(getattr(value, name), hint) for name, hint in settings_of(type(value)).items()}


def _plain_choice(value: Any, choice: Choice) -> Any:
    if (parts := choice.open().parts_of(value)) is not None:
        return {pattern: _plain_choice(part, choice) for pattern, part in parts.items()}
    if isinstance(value, UserObject):
        name, settings = value.reference, plain({**value.arguments, **value.apart})
    else:
        name, settings = choice.name_of(type(value)), plain_settings(value)
    return {"name": name, **settings} if settings else name


def flat(session: Any) -> dict[str, Any]:
    """List every setting under its dotted name."""

    def walk(path: str, value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            return [(path, value)]
        return [row for name, child in value.items() for row in walk(join(path, name), child)]

    return dict(walk("", plain(session)))


def digest(session: Any) -> str:
    """SHA-256 of the settings as canonical JSON."""
    import hashlib
    import json

    text = json.dumps(plain(session), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def to_yaml(session: Any) -> str:
    """YAML with one setting a line."""
    return "".join(f"{line}\n" for line in _lines(plain(session), ""))


def _lines(mapping: Mapping[str, Any], indent: str) -> list[str]:
    lines = []
    for name, value in mapping.items():
        if isinstance(value, dict) and value:
            lines += [f"{indent}{scalar(name)}:", *_lines(value, indent + "  ")]
        elif isinstance(value, list) and any(isinstance(child, dict) for child in value):
            lines += [f"{indent}{scalar(name)}:", *(f"{indent}  - {flow(child)}" for child in value)]
        else:
            lines.append(f"{indent}{scalar(name)}: {flow(value)}")
    return lines


def flow(value: Any) -> str:
    """A value in YAML's flow style, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{scalar(name)}: {flow(child)}" for name, child in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    return scalar(value)


def scalar(value: Any) -> str:
    """One value in YAML 1.2; text is quoted unless it is a plain word that no YAML reads as something else."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float) and not isfinite(value):
        return ".nan" if value != value else f"{'-' if value < 0 else ''}.inf"
    if isinstance(value, (int, float)):
        return repr(value)
    if BARE.fullmatch(value) and value.lower() not in WORDS:
        return str(value)
    return '"' + "".join(map(_escaped, value)) + '"'


def _escaped(character: str) -> str:
    if character in ESCAPES or character.isprintable():
        return ESCAPES.get(character, character)
    return f"\\U{ord(character):08x}"
