from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from volary.errors import SettingError
from volary.session.reading.choice import Choice
from volary.session.reading.node import FAULT, from_python
from volary.session.reading.problems import Problems
from volary.session.reading.reader import Reader
from volary.session.reading.yaml_file import parse
from volary.session.values.period import Period
from volary.session.values.size import Size
from volary.train.optimizers import ROOM

RULES = ROOM.names()


@dataclass(frozen=True, kw_only=True)
class Inner:
    low: int = 0
    high: int = 9

    def __post_init__(self):
        if self.low < 0:
            raise SettingError(f"low is {self.low}; accepted: 0 or more")
        if self.high > 9:
            raise SettingError(f"high is {self.high}; accepted: up to 9")
        if self.low > self.high:
            raise SettingError(f"low is {self.low}; accepted: up to high, {self.high}")


@dataclass(frozen=True, kw_only=True)
class Outer:
    flag: bool = False
    count: int = 1
    rate: float = 0.5
    word: str = "a"
    maybe: float | None = None
    mode: Literal["slow", "fast"] = "slow"
    shape: tuple[int, ...] = ()
    pair: tuple[float, float] = (0.0, 1.0)
    names: list[str] = field(default_factory=list)
    where: Path = Path()
    either: int | Literal["auto"] = "auto"
    many: tuple[Inner, ...] | None = None
    inner: Inner = field(default_factory=Inner)
    every: Period = Period(1, "steps")  # noqa: RUF009
    room: Size = Size(1)  # noqa: RUF009
    rule: Annotated[Any, Choice("volary.train.optimizers", user=True)] = "sgd"
    anything: Any = None


def read(text, cls=Outer):
    problems = Problems()
    node = parse(text, "f", Path("/home"), problems)
    value = Reader(problems).build(cls, node, "") if node else FAULT
    return value, [str(problem) for problem in problems.found]


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("flag: true", "flag", True),
        ("count: 0x10", "count", 16),
        ("count: 010", "count", 10),
        ("rate: 1e-3", "rate", 0.001),
        ("rate: .5", "rate", 0.5),
        ("rate: 3", "rate", 3.0),
        ("word: no", "word", "no"),
        ("word: '3'", "word", "3"),
        ("word: 2026-11-21", "word", "2026-11-21"),
        ("word: !!str 3", "word", "3"),
        ("maybe: null", "maybe", None),
        ("maybe: ~", "maybe", None),
        ("maybe:", "maybe", None),
        ("maybe: 2", "maybe", 2.0),
        ("mode: fast", "mode", "fast"),
        ("shape: [1, 28, 28]", "shape", (1, 28, 28)),
        ("pair: [1, 2]", "pair", (1.0, 2.0)),
        ("names: [a, b]", "names", ["a", "b"]),
        ("where: data/x", "where", Path("/home/data/x")),
        ("where: /data/x", "where", Path("/data/x")),
        ("either: auto", "either", "auto"),
        ("either: 3", "either", 3),
        ("many: [{low: 1}, {}]", "many", (Inner(low=1), Inner())),
        ("inner: {low: 2}", "inner", Inner(low=2)),
        ("every: never", "every", Period(0, "never")),
        ("room: 4kB", "room", Size(4000)),
        ("room: 4096", "room", Size(4096)),
        ("room: 0", "room", Size(0)),
        ("anything: {a: [1, {b: null}]}", "anything", {"a": [1, {"b": None}]}),
        ("shape: &s [2]\nanything: *s", "anything", [2]),
    ],
)
def test_values_are_read_as_their_types(text, name, value):
    outer, problems = read(text)
    assert problems == []
    assert getattr(outer, name) == value
    assert type(getattr(outer, name)) is type(value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("flag: no", "f:1:7: flag: is 'no'; accepted: true or false"),
        ("flag: 1", "f:1:7: flag: is 1; accepted: true or false"),
        ("count: true", "f:1:8: count: is true; accepted: a whole number"),
        ("count: 1.0", "f:1:8: count: is 1.0; accepted: a whole number"),
        ("count: '1'", "f:1:8: count: is '1'; accepted: a whole number"),
        ("count:", "f:1:7: count: is null; accepted: a whole number"),
        ("count: [1]", "f:1:8: count: is a list; accepted: a whole number"),
        ("rate: true", "f:1:7: rate: is true; accepted: a number"),
        ("rate: .nan", "f:1:7: rate: is nan; accepted: a finite number"),
        ("rate: .inf", "f:1:7: rate: is inf; accepted: a finite number"),
        ("rate: ten", "f:1:7: rate: is 'ten'; accepted: a number"),
        ("word: 3", "f:1:7: word: is 3; accepted: text (in quotes: '3')"),
        ("word: true", "f:1:7: word: is true; accepted: text (in quotes: 'true')"),
        ("word: {}", "f:1:7: word: is a mapping; accepted: text"),
        ("maybe: x", "f:1:8: maybe: is 'x'; accepted: a number or null"),
        ("mode: quick", "f:1:7: mode: is 'quick'; accepted: one of: slow, fast"),
        ("shape: 3", "f:1:8: shape: is 3; accepted: a list, each a whole number"),
        ("shape: [1, x]", "f:1:12: shape: is 'x'; accepted: a whole number"),
        ("pair: [1]", "f:1:7: pair: has 1 values; accepted: a list of 2: a number, a number"),
        ("either: off", "f:1:9: either: is 'off'; accepted: a whole number or one of: auto"),
        ("many: [{lo: 1}]", "f:1:9: many.lo: unknown; did you mean 'low'? Known: low, high"),
        ("inner: 3", "f:1:8: inner: is 3; accepted: settings: low, high"),
        (
            "every: 3",
            "f:1:8: every: is 3; accepted: '<n> steps', '<n> epochs' (n a whole number, 1 or more) or 'never'",
        ),
        (
            "rule: {name: 3}",
            "f:1:14: rule: has the name 3; accepted: " + Choice("volary.train.optimizers", user=True).in_words(),
        ),
        (
            "rule: sgdd",
            f"f:1:7: rule: unknown name 'sgdd'; did you mean 'sgd'? Known: {', '.join(RULES)}",
        ),
        ("rule: 'a b:c'", "f:1:7: rule: is 'a b:c'; accepted: 'package.module:name' or 'path/file.py:name'"),
        ("rule: {betas: 1}", "f:1:8: rule.betas: unknown; Known: lr, momentum, dampening, weight_decay, nesterov"),
        ("nothing: 1", None),
    ],
)
def test_a_mistake_says_where_what_and_what_is_accepted(text, problem):
    outer, problems = read(text)
    assert outer is FAULT
    if problem is not None:
        assert problems == [problem]


def test_the_longest_values_are_cut():
    assert len(read("count: " + "x" * 1000)[1][0]) < 150


def test_every_value_that_a_class_refuses_is_found():
    assert read("inner:\n  low: -3\n  high: 12")[1] == [
        "f:2:8: inner.low: is -3; accepted: 0 or more",
        "f:3:9: inner.high: is 12; accepted: up to 9",
    ]


def test_a_rule_over_two_values_blames_neither_default():
    assert read("inner: {low: 10}")[1] == ["f:1:14: inner.low: is 10; accepted: up to high, 9"]


def test_a_rule_is_not_judged_by_the_default_of_a_value_that_is_wrong():
    assert read("inner: {low: 5, high: x}")[1] == ["f:1:23: inner.high: is 'x'; accepted: a whole number"]


def test_what_is_required_and_missing_is_said_with_what_is_accepted():
    @dataclass(frozen=True, kw_only=True)
    class Needy:
        rule: Annotated[Any, Choice("volary.train.optimizers")]
        size: int

    assert read("{}", Needy)[1] == [
        f"f:1:1: rule: is missing; accepted: {', '.join(RULES)}",
        "f:1:1: size: is missing; accepted: a whole number",
    ]
    assert read("rule: {lr: 1}\nsize: 1", Needy)[1] == [f"f:1:7: rule: lacks a name; accepted: {', '.join(RULES)}"]


def test_plain_python_values_are_read_the_same():
    problems = Problems()
    node = from_python({"shape": (1, 2), "inner": {"low": 1}, "rule": "sgd"}, "here", Path("/"))
    outer = Reader(problems).build(Outer, node, "")
    assert problems.found == []
    assert (outer.shape, outer.inner) == ((1, 2), Inner(low=1))
