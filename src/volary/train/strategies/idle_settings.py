"""Settings of communication that have no effect in a run, and why: nothing is accepted and then ignored in silence."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from volary.exchange.choice.layers import LEAST_VALUES
from volary.exchange.gradients.row_blocks import LARGE_BYTES
from volary.exchange.representations.exact import EXACT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from volary.codec._base import Codec
    from volary.exchange.representations._base import Representation
    from volary.session.spec import Strategy

_MATRICES = (
    f"codecs take matrices of 32-bit floats with {LEAST_VALUES} values or more, and there is none that it is for"
)
_PRODUCTS = (
    f"factors are of fully connected layers of {LARGE_BYTES / 2**20:g} MiB or more, of 1 x 1 convolutions and of "
    "embeddings, and there is none"
)


def of_one_worker(settings: Strategy) -> str:
    """The warning if one worker communicates with nobody; empty if all its settings are the usual ones."""
    exchange, model = settings.exchange, type(settings.consistency).__module__.rpartition(".")[2]
    usual = type(exchange)()
    named = {f"exchange.{one.name}": getattr(exchange, one.name) for one in fields(exchange)}
    idle = [f"{name}={value}" for name, value in named.items() if value != getattr(usual, name.partition(".")[2])]
    idle += [f"consistency={model}"] if model != "bsp" and settings.consistency.threads == 1 else []
    idle += [_called(settings.codec)] if not settings.codec.exact else []
    idle += [f"partition={type(settings.partition).__module__.rpartition('.')[2]}"] if settings.partition.needs else []
    listed = ", ".join(f"strategy.{one}" for one in idle)
    verb = "has" if len(idle) == 1 else "have"
    return f"{listed} {verb} no effect: there is one worker, which communicates with nobody" if listed else ""


def of_one_replica(settings: Strategy) -> str:
    """The warning if workers hold one replica together, whose gradients would travel by a codec; else empty."""
    if settings.codec.exact:
        return ""
    return (
        f"strategy.{_called(settings.codec)} has no effect: all workers hold one replica, whose gradients do not travel"
    )


def of_freed_memory(level: int) -> str:
    """The warning if all workers share the memory of what each is to keep a share of at this `level`."""
    parameters = ", and parameters are there once for all of them" if level > 2 else ""
    return (
        f"strategy.partition.level={level} saves no more than level 1: workers of one machine add gradients in shared "
        f"memory, where each leaves them{parameters}; accepted, if that is too much: exchange.route=ring"
    )


def of_layers(codec: Codec, offered: Iterable[Representation]) -> str:
    """The warning if all layers travel as they are. offered: what any layer may travel by."""
    if codec.exact or any(one != EXACT for one in offered):
        return ""
    why = _PRODUCTS if codec.needs_gradients else _MATRICES
    return f"strategy.{_called(codec)} has no effect: {why}, so all values travel as they are"


def of_choice(codec: Codec) -> str:
    """The warning if a codec that chooses by bytes lets all layers travel as they are."""
    return f"strategy.{_called(codec)} has no effect: every layer's gradient is fewer bytes as it is"


def of_shared_memory(codec: Codec) -> str:
    """The warning if ranks add in the memory of their machine, and the codec does not change that."""
    return (
        f"strategy.{_called(codec)} has no effect: all workers are on one machine and add in its shared memory, where "
        "nothing is sent that could be made fewer bytes"
    )


def of_warm_up(codec: Codec, samples: int) -> str:
    """The warning at the end of training, after so many samples; empty if the codec's warm-up is over."""
    if codec.at(samples) == codec:
        return ""
    return (
        f"the warm-up of strategy.{_called(codec)} was not over at the end of training, after {samples} samples; "
        "accepted: a smaller warm_up_samples"
    )


def _called(codec: Codec) -> str:
    return "codec" if codec.patterns() else f"codec={codec.name}"
