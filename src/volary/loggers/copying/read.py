"""Loggers as a command line names them: `csv`, or `{name: tensorboard, folder: tb}`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from volary.errors import BadInput
from volary.session.reading.choice import Choice
from volary.session.reading.problems import Problems
from volary.session.reading.reader import Reader
from volary.session.reading.yaml_file import parse

OPTION = "logger"


def read(words: Sequence[str]) -> list[Any]:
    """The `Logger` of each word. Raises SessionError for one that is none, BadInput if its package is not
    installed, or a copy cannot be made where it says.
    """
    problems = Problems()
    reader, choice = Reader(problems), Choice("volary.loggers")
    nodes = [parse(word, OPTION, Path.cwd(), problems, numbered=False) for word in words]
    found = [reader.choose(choice, node, word, None) for node, word in zip(nodes, words, strict=True) if node]
    problems.raise_if_any()
    for logger in found:
        if logger.package and find_spec(logger.package) is None:
            name = choice.name_of(type(logger))
            raise BadInput(f"{logger.package} is not installed; accepted: pip install 'volary[{name}]' first")
        logger.check()
    return found
