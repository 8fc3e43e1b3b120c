"""Labs for tests: opened, closed, skipped with the reason where this machine or this user cannot have one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest

from volary.lab import Lab, LabError
from volary.lab.needs import needs_user_namespace


@cache
def why_not() -> str:
    try:
        needs_user_namespace()
    except LabError as reason:
        return str(reason)
    return ""


@pytest.fixture
def allowed() -> None:
    if why_not():
        pytest.skip(why_not())


@pytest.fixture
def opened(allowed: None) -> Iterator[Callable[..., Lab]]:
    """`opened(hosts=2)`: an open lab, which is closed with the test."""
    with ExitStack() as labs:

        def open_lab(*arguments: Any, **settings: Any) -> Lab:
            return labs.enter_context(Lab(*arguments, **settings))

        yield open_lab
