"""Makes typed values of nodes: strict, and every problem on the way is noted instead of raised."""

from __future__ import annotations

import re
from math import isfinite
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from volary.errors import SettingError
from volary.session.misplaced import COMMAND_LINE, Whole, beside, elsewhere, moved
from volary.session.reading.choice import Choice
from volary.session.reading.chosen import read_choice
from volary.session.reading.fields import defaults_of, required_of, settings_of
from volary.session.reading.node import FAULT, Fault, Node, join
from volary.session.reading.problems import Problems, SessionError, nearest, unknown
from volary.session.reading.synonyms import place_of
from volary.session.reading.words import choice_in, in_words, is_union


class Reader:
    """Reads nodes as dataclasses, choices, lists and scalars. Nothing is guessed: true is no number, 3 is no text."""

    def __init__(self, problems: Problems, whole: Whole | None = None) -> None:
        """whole: all that was written, where the place that a misplaced setting belongs to is looked for."""
        self.problems, self.whole = problems, whole

    def fault(self, place: str, path: str, sentence: str) -> Fault:
        """Note a problem, and return what stands for the value that it hides."""
        self.problems.add(place, path, sentence)
        return FAULT

    def refuse(self, node: Node, path: str, accepted: str) -> Fault:
        """Note that the node's value is not what is accepted."""
        if is_infinite(node.value):
            accepted = accepted.replace("a number", "a finite number")
        if type(node.value) is int and not _is_of_64_bits(node.value):
            accepted = re.sub("a (whole )?number", r"a \1number of 64 bits", accepted)
        return self.fault(node.place, path, f"is {shown(node.value)}; accepted: {accepted}")

    def read(self, hint: Any, node: Node, path: str, default: Any = None) -> Any:
        """The node's value as a `hint`, or FAULT. default: the field's, which a choice without a name means."""
        if node.value is FAULT:
            return FAULT
        if choice := choice_in(hint):
            if node.value is None and is_union(hint):
                return None
            return self.choose(choice, node, path, default)
        if get_origin(hint) is Annotated:
            prepare = next((one for one in hint.__metadata__ if callable(one)), None)
            return self.read(get_args(hint)[0], prepare(node) if prepare else node, path, default)
        if is_union(hint):
            return self._union(hint, node, path)
        if get_origin(hint) in (list, tuple):
            return self._sequence(hint, node, path)
        if get_origin(hint) is dict:
            return self._mapping(hint, node, path)
        if hint is Any:
            return self._untyped(node, path)
        if get_origin(hint) is Literal or hint in SCALARS:
            return self._scalar(hint, node, path)
        if hasattr(hint, "parse"):
            return self._parsed(hint, node, path)
        return self._section(hint, node, path)

    def choose(self, choice: Choice, node: Node, path: str, default: Any) -> Any:
        """The plug-in that the node names, or FAULT; see `read`."""
        try:
            return read_choice(choice, self, node, path, default)
        except SettingError as error:
            return self.fault(node.place, path, str(error))

    def moved(self, name: Node, settings: Node, path: str, room: str, default: str) -> Fault:
        """Note that what was called `name` here is in another room now, and what to write instead.

        settings: what was given beside the name. default: what stands here instead.
        """
        return self.fault(name.place, path, moved(name.value, settings, path, room, default))

    def _union(self, hint: Any, node: Node, path: str) -> Any:
        tries = [Reader(Problems(), self.whole) for _ in get_args(hint)]
        for arm, reader in zip(get_args(hint), tries, strict=True):
            value = reader.read(arm, node, path)
            if value is not FAULT:
                return value
        real = [reader for arm, reader in zip(get_args(hint), tries, strict=True) if arm is not NoneType]
        if len(real) == 1 and isinstance(node.value, (dict, list)):
            self.problems.found += real[0].problems.found
            return FAULT
        quotes = in_quotes(str, node.value) if str in get_args(hint) else ""
        return self.refuse(node, path, in_words(hint) + quotes)

    def _sequence(self, hint: Any, node: Node, path: str) -> Any:
        items, kind = get_args(hint), get_origin(hint)
        if not isinstance(node.value, list):
            return self.refuse(node, path, in_words(hint))
        if kind is list or items[1:] == (Ellipsis,):
            items = items[:1] * len(node.value)
        if len(items) != len(node.value):
            return self.fault(node.place, path, f"has {len(node.value)} values; accepted: {in_words(hint)}")
        values = [self.read(item, child, path) for item, child in zip(items, node.value, strict=True)]
        return FAULT if FAULT in values else kind(values)

    def _mapping(self, hint: Any, node: Node, path: str) -> Any:
        if not isinstance(node.value, dict):
            return self.refuse(node, path, in_words(hint))
        values = {name: self.read(get_args(hint)[1], child, join(path, name)) for name, child in node.value.items()}
        return FAULT if FAULT in values.values() else values

    def _scalar(self, hint: Any, node: Node, path: str) -> Any:
        value = node.value
        if get_origin(hint) is Literal:
            fits = any(value == known and type(value) is type(known) for known in get_args(hint))
        elif hint is float:
            fits = _is_of_64_bits(value) or (type(value) is float and isfinite(value))
            value = float(value) if fits else value
        elif hint is Path:
            fits = isinstance(value, (str, Path)) and str(value) != "" and "://" not in str(value)
            value = (node.folder / Path(value).expanduser()).absolute() if fits else value
        else:
            fits = _is_of_64_bits(value) if hint is int else type(value) is hint
        return value if fits else self.refuse(node, path, in_words(hint) + in_quotes(hint, value))

    def _untyped(self, node: Node, path: str) -> Any:
        """The arguments of the user's own code, as they were written; only its numbers are checked."""
        leaves = [(leaf, where) for leaf, where in node.leaves(path) if type(leaf.value) is int]
        beyond = [self.refuse(leaf, where, "a number") for leaf, where in leaves if not _is_of_64_bits(leaf.value)]
        return FAULT if beyond else node.plain()

    def _parsed(self, hint: Any, node: Node, path: str) -> Any:
        if isinstance(node.value, hint):
            return node.value
        number = type(node.value) is int  # as YAML has a size of 0, or of so many bytes
        if not isinstance(node.value, str) and not number:
            return self.refuse(node, path, in_words(hint))
        try:
            return hint.parse(str(node.value))
        except SettingError as error:
            return self.refuse(node, path, in_words(hint)) if number else self.fault(node.place, path, str(error))

    def _section(self, cls: type, node: Node, path: str) -> Any:
        if isinstance(node.value, cls):
            return node.value
        if node.value is not None and not isinstance(node.value, dict):
            return self.refuse(node, path, in_words(cls))
        return self.build(cls, node, path)

    def build(self, cls: type, node: Node, path: str) -> Any:
        """An object of the dataclass from the node's entries; a node of None has none."""
        given: dict[str, Node] = node.value or {}
        if spread := getattr(cls, "spread", None):
            written = given
            given = spread(written, lambda name, accepted: self.refuse(written[name], join(path, name), accepted))
        known, defaults = settings_of(cls), defaults_of(cls)
        faulty: set[str] = set()
        values: dict[str, Any] = {}
        for name, child in given.items():
            where = join(path, name)
            if name not in known:
                faulty.add(name)
                self.fault(child.key_place, where, self._unknown(name, cls, node, path))
                continue
            value = self.read(known[name], child, where, defaults.get(name))
            if value is FAULT:
                faulty.add(name)
            else:
                values[name] = value
        for name in required_of(cls):
            if name not in given:
                self.fault(node.place, join(path, name), f"is missing; accepted: {in_words(known[name])}")
        return self._construct(cls, values, node, path, faulty)

    def _unknown(self, name: str, cls: type, node: Node, path: str) -> str:
        """The line to write, or the nearest setting that `cls` has, or where else there is such a setting."""
        known = settings_of(cls)
        if sentence := beside(name, cls, node, path):
            return sentence
        near = nearest(name, known) or place_of(name, [one for one in required_of(cls) if one not in node.value])
        far = None if near else elsewhere(name, node.value[name], self.whole)
        return far or unknown(name, known, near)

    def _construct(self, cls: type, values: dict[str, Any], node: Node, path: str, faulty: set[str]) -> Any:
        """Let the class check its values. One that it refuses is taken out and the rest tried again: all are found.

        What is required and missing or faulty is FAULT meanwhile, so that it hides nothing else.
        """
        while True:
            absent = {name: FAULT for name in required_of(cls) if name not in values}
            try:
                made = cls(**values, **absent)
                return FAULT if faulty or absent else made
            except SessionError as error:
                for problem in error.problems:
                    self.fault(node.below(problem.path).place, join(path, problem.path), problem.sentence)
                return FAULT
            except SettingError as error:
                refused = self._refused(str(error), node, path, faulty & set(settings_of(cls)) | set(absent))
            except (AttributeError, TypeError):
                if absent:  # a check that looks at what is absent; what stands behind it is found the next time
                    return FAULT
                raise
            if refused not in values:
                return FAULT
            del values[refused]
            faulty.add(refused)

    def _refused(self, sentence: str, node: Node, path: str, faulty: set[str]) -> str:
        """Note what a class said of its values; the setting it named. A rule over a faulty value is not blamed."""
        name, _, rest = sentence.partition(" ")
        about = rest.replace("'", " ").replace(";", " ").replace(",", " ").split()
        about += [word.partition("=")[0] for word in rest.partition("; accepted")[0].split()]
        first = name.partition(".")[0]
        if first in faulty or not faulty.isdisjoint(word.rpartition(".")[2] for word in about):
            return ""
        if override := _override_in(rest, name, node, path):
            # what the file says was right until then
            self.fault(node.below(override).place, join(path, override), sentence)
        elif isinstance(node.value, dict) and first in node.value:
            about_it = rest if rest.startswith("is ") else sentence
            self.fault(node.below(name).place, join(path, name), about_it)
        else:
            self.fault(node.place, path, sentence)
        return name


def _override_in(sentence: str, name: str, node: Node, path: str) -> str:
    """The first setting that a sentence is about and that was overridden; none if `name` itself was."""
    if _overridden(node, name):
        return ""
    named = (word.removeprefix(f"{path}.") for word in re.findall(r"[a-z_]+(?:\.[a-z_]+)*", sentence))
    return next((other for other in named if _overridden(node, other)), "")


def _overridden(node: Node, path: str) -> bool:
    found = node.below(path)
    return found.place == COMMAND_LINE and isinstance(node.value, dict) and path.partition(".")[0] in node.value


SCALARS = (bool, int, float, str, Path, NoneType, Any)


def shown(value: Any) -> str:
    """A value as a sentence shows it: as in YAML, and never long."""
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    words = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else None
    text = "null" if value is None else words or repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _is_of_64_bits(value: Any) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def is_infinite(value: Any) -> bool:
    """Whether the value is infinite or not a number, or text that means that elsewhere."""
    if isinstance(value, str):
        return value.lower().lstrip("+-.") in ("nan", "inf", "infinity")
    return isinstance(value, float) and not isfinite(value)


def in_quotes(hint: Any, value: Any) -> str:
    """A hint for text that YAML reads as something else."""
    return f" (in quotes: '{shown(value)}')" if hint is str and type(value) in (bool, int, float) else ""
