"""The arguments that `volary.launch` passes to a function: kept in the run, in values that cannot run anything."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from volary.errors import BadInput
from volary.train.own.saving.plain_values import ACCEPTED, keepable
from volary.train.state.state_file import packed, unpacked


def packed_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """Pack arguments into a file's content. Raises BadInput for what cannot be handed to another process so."""
    named = {str(place): value for place, value in enumerate(args)} | dict(kwargs)
    found = {}
    for name, value in named.items():
        parsed = isinstance(value, argparse.Namespace)
        found[name], refused = keepable(vars(value) if parsed else value)
        for where, kind in refused.items():
            raise BadInput(
                f"volary.launch: argument {name}{where} is a {kind}; accepted: {ACCEPTED}, and an argparse.Namespace "
                "of these; make anything else inside of the function"
            )
        found[name] = [parsed, found[name]]
    return packed([found, len(args)])


def unpacked_arguments(file: Path) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments that were packed; none if there is no such file."""
    if not file.exists():
        return [], {}
    found, count = unpacked(file.read_bytes(), file)
    values = {name: argparse.Namespace(**value) if parsed else value for name, (parsed, value) in found.items()}
    return [values.pop(str(place)) for place in range(count)], values
