"""Chooses which gradients travel together: small parameters in one bucket, a large one in a bucket of its own."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from volary.exchange.gradients.plan import BYTES_PER_MIB, BucketPlan
from volary.exchange.representations.exact import EXACT

if TYPE_CHECKING:
    from torch.nn import Parameter

    from volary.exchange.representations._base import Representation

BESIDE_BYTES = 2**14  # of a parameter that is not encoded and travels with those that are: a sum for itself costs more
FIRST_BYTES = BYTES_PER_MIB  # of the bucket that backward fills first, and of that which the next forward needs first


@dataclass
class _Filling:
    """A bucket that is being filled, up to `most_bytes`, and as near to `even_bytes` as its parameters allow.

    parameters: in the order of backward. last: the number of the last one in it.
    """

    representation: Representation
    most_bytes: float
    even_bytes: float
    parameters: list[tuple[str, Parameter]] = field(default_factory=list)
    size_bytes: int = 0
    last: int = 0

    def has_room(self, own_bytes: int) -> bool:
        """Whether a parameter of so many bytes belongs in it."""
        fits = self.size_bytes + own_bytes <= self.most_bytes
        return fits and own_bytes <= 2 * (self.even_bytes - self.size_bytes)


def plan(
    named: list[tuple[str, Parameter]],
    bucket_mb: float,
    representations: Mapping[str, Representation] | None = None,
    *,
    beside: bool = False,
) -> list[BucketPlan]:
    """Cut parameters, given in the network's order, into buckets in the order in which backward is through with them.

    bucket_mb: size in MiB at which a bucket is closed; a parameter of that size has a bucket to itself.
    representations: of each parameter that does not travel as it is. beside: small ones that do lie in the buckets of
    encoded ones, where they travel as they are with the frames. Buckets of several representations and types are filled
    side by side, so that a layer between two encoded ones does not part them; what travels by layer has a bucket to
    itself. Of what travels as it is the first buckets are smaller: nothing can leave until the
    first is whole, and it is the last that forward waits for. What is encoded has as many buckets as it must, all about
    alike: each costs calls and messages, and one that is whole as backward ends is encoded while nothing computes.
    """
    bucket_bytes = bucket_mb * BYTES_PER_MIB
    found: list[_Filling] = []
    filling: dict[tuple[Any, ...], _Filling] = {}
    kinds = {name: _kind(name, parameter, (representations or {}).get(name, EXACT)) for name, parameter in named}
    whole_bytes = Counter[tuple[Any, ...]]()
    if beside:
        _join_encoded(named, kinds)
    for name, parameter in named:
        whole_bytes[kinds[name]] += _bytes(parameter)
    left_bytes = whole_bytes.copy()
    for number, (name, parameter) in enumerate(reversed(named)):
        kind = kinds[name]
        representation: Representation = kind[0]
        own_bytes = 0 if representation.by_layer else _bytes(parameter)
        group = filling.get(kind)
        if group is None or not group.has_room(own_bytes):
            first_bytes = FIRST_BYTES if representation == EXACT and whole_bytes[kind] > bucket_bytes else bucket_bytes
            most_bytes = min(bucket_bytes, first_bytes if group is None else 2 * group.most_bytes)
            even_bytes = _even(left_bytes[kind], bucket_bytes) if representation.frames is not None else math.inf
            group = filling[kind] = _Filling(representation, most_bytes, even_bytes)
            found.append(group)
        left_bytes[kind] -= own_bytes
        group.parameters.append((name, parameter))
        group.size_bytes, group.last = group.size_bytes + own_bytes, number
    groups = [(one.representation, one.parameters) for one in sorted(found, key=lambda one: one.last)]
    if len(groups) > 1 and not groups[-1][0].by_layer:
        representation, parameters = groups.pop()
        groups += [(representation, part) for part in _split_first_layers(parameters)]
    return [_planned(representation, group, representations or {}) for representation, group in groups]


def _planned(
    representation: Representation, group: list[tuple[str, Parameter]], representations: Mapping[str, Representation]
) -> BucketPlan:
    """The bucket's plan; what travels as it is beside frames comes last."""
    own = [one for one in group if representations.get(one[0], EXACT) == representation]
    plain = [one for one in group if representations.get(one[0], EXACT) != representation]
    _, first = group[0]
    return BucketPlan([*own, *plain], first.dtype, first.device, representation, len(plain))


def _join_encoded(named: list[tuple[str, Parameter]], kinds: dict[str, tuple[Any, ...]]) -> None:
    """Let small parameters that travel as they are be of the kind of encoded ones of their type, if there are some."""
    encoded = {kind[1:3]: kind for kind in kinds.values() if kind[0].frames is not None}
    for name, parameter in named:
        representation, *where = kinds[name]
        if representation == EXACT and _bytes(parameter) <= BESIDE_BYTES:
            kinds[name] = encoded.get(tuple(where[:2]), kinds[name])


def _even(size_bytes: int, most_bytes: float) -> float:
    """The size of each of as few equal parts as have at most `most_bytes`."""
    return size_bytes / max(1, math.ceil(size_bytes / most_bytes))


def _kind(name: str, parameter: Parameter, representation: Representation) -> tuple[Any, ...]:
    """The traits that parameters of one bucket have in common; its representation first."""
    layer = name.rpartition(".")[0] if representation.by_layer else None
    if not representation.travels:  # it leaves when it is there, and with it that it was used
        layer = name
    return representation, parameter.dtype, parameter.device, layer


def _split_first_layers(group: list[tuple[str, Parameter]]) -> list[list[tuple[str, Parameter]]]:
    left, cut = FIRST_BYTES, len(group)
    while cut and (left := left - _bytes(group[cut - 1][1])) >= 0:
        cut -= 1
    return [part for part in (group[:cut], group[cut:]) if part]


def _bytes(parameter: Parameter) -> int:
    return parameter.numel() * parameter.element_size()
