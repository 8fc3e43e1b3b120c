"""Which tensor of a file belongs to which of a network, by names without prefixes and by rules; and what fits none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from volary.naming import fits

if TYPE_CHECKING:
    from volary.network.starting_weights import StartingWeights
    from volary.train.beginning.stored import Stored

    Shapes = Mapping[str, tuple[int, ...]]

PREFIXES = ("module.", "_orig_mod.", "model.")  # of wrappers, as others save them
SCALES = ("_scale_inv", "_scale")  # of a tensor of 8 bits, beside it: what its values are multiplied by
COUNTER = "num_batches_tracked"  # of batch norm, which files of old lack: it starts at 0
MOST_COMPARED = 40  # names of which the nearest one is looked for, which takes long


@dataclass
class Matched:
    """The tensors that were found. pairs: by the network's names, the file's. again: others of the file for a name that
    has one.

    problems: sentences, for what does not fit.
    """

    pairs: dict[str, str] = field(default_factory=dict)
    again: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def match(own: Shapes, aliases: Mapping[str, str], found: Stored, weights: StartingWeights, classes: int) -> Matched:
    """Find for each tensor of a network the one of a file.

    own: shapes of the network's tensors. aliases: other names of those that are shared, and their own. classes: of the
    network, 0 if unknown.
    """
    matched, unread = Matched(), list[str]()
    fresh = {name for name in own if any(fits(name, pattern) for pattern in weights.fresh)}
    for name in found:
        if any(fits(name, pattern) for pattern in weights.leave_out):
            continue
        target = _target(name, {*own, *aliases}, weights.rename)
        target = aliases.get(target, target)
        if target in own:
            if matched.pairs.setdefault(target, name) != name:
                matched.again.append((target, name))
        elif not _is_scale(name, found):
            unread.append(name)
    if weights.replace_last:
        fresh |= {
            name for name, theirs in matched.pairs.items() if _of_classes(own[name], found[theirs].shape, classes)
        }
    missing = [name for name in own if name not in matched.pairs and name not in fresh and not name.endswith(COUNTER)]
    for name in fresh:
        matched.pairs.pop(name, None)
    others = [name for name in unread if not any(fits(_bare(name), pattern) for pattern in weights.fresh)]
    _say(matched, missing, others, own, found)
    matched.problems += _unused(weights, own, found)
    return matched


def _say(matched: Matched, missing: Sequence[str], unread: Sequence[str], own: Shapes, found: Stored) -> None:
    shapes, compared = {name: one.shape for name, one in found.items()}, iter(range(MOST_COMPARED))
    for name in missing:
        near = _nearest(name, own[name], {one: shapes[one] for one in unread}, compared)
        matched.problems.append(f"{name} ({_sizes(own[name])}) is not in the file{near}")
    for name, theirs in matched.pairs.items():
        if own[name] != shapes[theirs]:
            is_theirs = "" if theirs == name else f", as {theirs},"
            matched.problems.append(
                f"{name} is {_sizes(shapes[theirs])} in the file{is_theirs} and {_sizes(own[name])} here"
            )
    for name in unread:
        near = _nearest(name, shapes[name], {one: own[one] for one in missing}, compared)
        matched.problems.append(f"{name} ({_sizes(shapes[name])}) is in the file, and the network has none such{near}")


def _unused(weights: StartingWeights, own: Iterable[str], found: Iterable[str]) -> list[str]:
    """Sentences for rules that fit nothing."""
    lines = []
    for setting, patterns, names in (("fresh", weights.fresh, own), ("leave_out", weights.leave_out, found)):
        for pattern in patterns:
            if not any(fits(name, pattern) for name in names):
                whose = "the network" if setting == "fresh" else "the file"
                lines.append(f"{setting} has {pattern!r}, which fits no name of {whose}")
    names = {one for name in found for one in (name, _bare(name))}
    idle = [pattern for pattern in weights.rename if not any(fnmatchcase(name, pattern) for name in names)]
    return lines + [f"rename has {pattern!r}, which fits no name of the file" for pattern in idle]


def _target(name: str, known: set[str], rules: Mapping[str, str]) -> str:
    """The network's name for one of the file's: as it is, or by the first rule that fits, or without prefixes."""
    bare = _bare(name)
    for one in (name, bare):
        for pattern, other in rules.items():
            if fnmatchcase(one, pattern):
                start, star, end = pattern.partition("*")
                return other.replace("*", one[len(start) : len(one) - len(end)] if star else "")
    while name not in known and name != bare:
        name = _without_one(name)
    return name


def _bare(name: str) -> str:
    """A name without any of the prefixes of wrappers."""
    while (short := _without_one(name)) != name:
        name = short
    return name


def _without_one(name: str) -> str:
    return next((name.removeprefix(prefix) for prefix in PREFIXES if name.startswith(prefix)), name)


def _is_scale(name: str, found: Stored) -> bool:
    return any(name.endswith(suffix) and name.removesuffix(suffix) in found for suffix in SCALES)


def _of_classes(own: Sequence[int], theirs: Sequence[int], classes: int) -> bool:
    """Whether two shapes differ in the number of classes alone, which is their first size."""
    return bool(own and theirs) and own[0] == classes != theirs[0] and own[1:] == theirs[1:]


def _nearest(name: str, shape: Sequence[int], known: Shapes, compared: Iterable[int]) -> str:
    """The name that was probably meant; of those of the same shape, if there are any."""
    if not known or next(iter(compared), None) is None:
        return ""
    alike = [other for other, one in known.items() if tuple(one) == tuple(shape)]
    near = get_close_matches(name, alike or list(known), n=1, cutoff=0.5)
    return f"; nearest: {near[0]}" if near else ""


def _sizes(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) or "scalar"
