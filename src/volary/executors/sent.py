"""Functions as Spark sends them to its executors, which may have no Volary, or another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import volary

P = ParamSpec("P")
T = TypeVar("T")


class HasVolary:
    """A check that travels: unpickling it raises RuntimeError, with the executor's name, where the driver's version of
    Volary is not.
    """

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        def required(wanted: str) -> None:  # travels as code, as functions do that no module has by their name
            import socket
            from importlib.util import find_spec

            if find_spec("volary") is None:
                raise RuntimeError(f"executor on {socket.gethostname()}: Volary is not installed; accepted: {wanted}")
            import volary

            if (here := volary.__version__) != wanted:
                raise RuntimeError(
                    f"executor on {socket.gethostname()}: has Volary {here}; accepted: the driver's, {wanted}"
                )

        return required, (volary.__version__,)


def sent(function: Callable[P, T]) -> Callable[P, T]:
    """The function as tasks of Spark are to have it: unpickled after the check that Volary is there."""
    parts: tuple[Any, Callable[P, T]] = (HasVolary(), function)  # unpickled in this order

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return parts[1](*args, **kwargs)

    return call
