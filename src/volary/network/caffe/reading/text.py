"""Reads protobuf's text format, which prototxt files are written in (protobuf.dev, "Text Format Language")."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from volary.errors import SettingError
from volary.network.caffe.findings import Findings
from volary.network.caffe.message import CaffeMessage
from volary.network.caffe.schema.table import ARRAYS, FLOATS, INTEGERS, FieldRow, is_message, kind

MOST_BYTES = 4 * 2**20  # of a file: the largest published networks have a tenth of it
MOST_VALUES = 50_000
MOST_DEPTH = 50
MOST_SHOWN = 60  # characters of a value or a name, in a message
_TOKEN = re.compile(
    r"""(?P<space>(?:[ \t\r\f\v\n]++|\#[^\n]*+)++)
    |(?P<number>(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]?)(?![\w.]))|(?P<word>[A-Za-z_][\w./-]*)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?P<mark>[{}<>\[\]:,;-])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_CLOSING = {"{": "}", "<": ">"}
_WORDS = {"true": True, "t": True, "false": False, "f": False}
_BOUNDS = {"int32": (-(2**31), 2**31), "int64": (-(2**63), 2**63), "uint32": (0, 2**32)}


@dataclass(frozen=True)
class _Token:
    kind: str  # number, word, string, mark, end
    text: str
    line: int
    column: int


def read_text(file: Path, message: str, findings: Findings | None = None) -> CaffeMessage:
    """The message of this kind that a prototxt file holds; fields that nobody knows are noted as ignored.

    Raises SettingError, with line and column, for a file that is missing, too large, or not in the text format.
    """
    findings = findings or Findings(str(file))
    try:
        with file.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise SettingError(f"{findings.file}: {error.strerror or error}; accepted: a prototxt file") from None
    if len(content) > MOST_BYTES:
        raise SettingError(f"{findings.file}: has more than {MOST_BYTES >> 20} MiB; accepted: a prototxt file")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SettingError(f"{findings.file}:{line}: is no UTF-8 text; accepted: a prototxt file") from None
    return parse(text, message, findings)


def parse(text: str, message: str, findings: Findings) -> CaffeMessage:
    """The message of this kind in `text`. Raises SettingError, with line and column, at the first error of syntax."""
    return _Parser(text, findings).message(CaffeMessage(message, 1), "", 0)


class _Parser:
    """Recursive descent over the tokens, which are made as they are asked for."""

    def __init__(self, text: str, findings: Findings) -> None:
        self._text, self._problems = text, findings
        self._place, self._line, self._line_began, self._values = 0, 1, 0, 0
        self._next = self._scan()

    def message(self, found: CaffeMessage | None, closing: str, depth: int) -> CaffeMessage:
        """The fields up to `closing`, added to `found`; None: nobody knows the message, its fields are left out."""
        if depth > MOST_DEPTH:
            raise self._error(f"messages are nested more than {MOST_DEPTH} deep", self._next)
        known = kind(found.kind).fields if found else {}
        while (token := self._take()).text != closing or token.kind == "string":
            if token.kind == "end":
                raise self._error(f"the file ends where {closing!r} is missing", token)
            if token.kind != "word":
                raise self._error(f"{_shown(token)} where a field's name is expected", token)
            field = known.get(token.text)
            if found and field is None:
                self._problems.ignore(f"field {_shown(token)} is unknown in {found.kind}", token.line)
            self._field(found if field else None, field, token, depth)
            if self._next.text in (",", ";") and self._next.kind == "mark":
                self._take()
        if found:
            _pack(found)
        return found or CaffeMessage("Net")

    def _field(self, found: CaffeMessage | None, field: FieldRow | None, name: _Token, depth: int) -> None:
        colon = self._accept(":")
        if colon and self._accept("["):
            while not self._accept("]"):
                self._value(found, field, name, depth, colon=True)
                if not self._accept(",") and self._next.text != "]":
                    raise self._error(f"{_shown(self._next)} where ',' or ']' is expected", self._next)
        else:
            self._value(found, field, name, depth, colon=colon)

    def _value(
        self, found: CaffeMessage | None, field: FieldRow | None, name: _Token, depth: int, *, colon: bool
    ) -> None:
        self._count(name)
        message = field is not None and is_message(field.type)
        token = self._take()
        if token.kind == "mark" and token.text in _CLOSING:
            if field is not None and not message:
                raise self._error(f"{name.text} is a message; accepted: {_accepted(field)}", name)
            inner = CaffeMessage(field.type, name.line) if field and message else None
            inner = self.message(inner, _CLOSING[token.text], depth + 1)
            if found and field:
                found.add(name.text, inner, line=name.line)
            return
        if message:
            raise self._error(f"{_shown(token)} where '{{' is expected: {name.text} is a message", token)
        if not colon:
            raise self._error(f"{_shown(token)} where ':' is expected after {_cut(name.text)}", token)
        value = self._scalar(token)
        if found and field:
            found.add(name.text, self._typed(field, value, token), line=name.line)

    def _scalar(self, token: _Token) -> _Token:
        """A number with its sign, a word, or strings beside each other as one."""
        if token.text == "-" and token.kind == "mark":
            follows = self._take()
            if follows.kind == "number" or follows.text.lower() in ("inf", "infinity", "nan"):
                return replace(token, kind="number", text=f"-{follows.text}")
            raise self._error(f"{_shown(follows)} where a number is expected after '-'", follows)
        if token.kind == "string":
            text = self._unescaped(token)
            while self._next.kind == "string":
                self._count(self._next)
                text += self._unescaped(self._take())
            return replace(token, text=text)
        if token.kind in ("number", "word"):
            return token
        shown = "the file ends" if token.kind == "end" else _shown(token)
        raise self._error(f"{shown} where a value is expected", token)

    @staticmethod
    def _unescaped(token: _Token) -> str:
        """The text in quotes; escapes stand for bytes, of which several may be one character."""
        text, found, place = token.text[1:-1], bytearray(), 0
        for match in _ESCAPE.finditer(text):
            octal, hexadecimal, letter = match.groups()
            found += text[place : match.start()].encode()
            if letter is None:
                found.append(int(octal, 8) & 255 if octal else int(hexadecimal, 16))
            else:
                found += _ESCAPED.get(letter, letter).encode()
            place = match.end()
        return (bytes(found) + text[place:].encode()).decode("utf-8", "replace")

    def _typed(self, field: FieldRow, token: _Token, place: _Token) -> Any:
        value = _converted(field, token)
        if value is None:
            raise self._error(f"{field.name} is {_shown(token)}; accepted: {_accepted(field)}", place)
        return value

    def _count(self, token: _Token) -> None:
        self._values += 1
        if self._values > MOST_VALUES:
            raise self._error(f"has more than {MOST_VALUES:,} values", token)

    def _accept(self, mark: str) -> bool:
        if self._next.kind == "mark" and self._next.text == mark:
            self._take()
            return True
        return False

    def _take(self) -> _Token:
        token = self._next
        if token.kind != "end":
            self._next = self._scan()
        return token

    def _scan(self) -> _Token:
        while self._place < len(self._text):
            match = _TOKEN.match(self._text, self._place)
            begins = self._place
            if match is None:
                raise self._error(f"{self._text[begins]!r} is no part of the text format", self._here("mark", begins))
            self._place = match.end()
            if match.lastgroup != "space":
                return self._here(str(match.lastgroup), begins)
            if lines := self._text.count("\n", begins, self._place):
                self._line += lines
                self._line_began = self._text.rfind("\n", begins, self._place) + 1
        return self._here("end", self._place)

    def _here(self, sort: str, begins: int) -> _Token:
        return _Token(sort, self._text[begins : self._place], self._line, begins - self._line_began + 1)

    def _error(self, sentence: str, token: _Token) -> SettingError:
        return SettingError(f"{self._problems.file}:{token.line}:{token.column}: {sentence}")


def _shown(token: _Token) -> str:
    return repr(_cut(token.text))


def _cut(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _converted(field: FieldRow, token: _Token) -> Any:
    """The token's value as the field's type; None if it is none."""
    text = token.text
    if field.type == "string":
        return text if token.kind == "string" else None
    if field.values is not None:
        by_number = {str(number): name for name, number in field.values.items()}
        name = by_number.get(text, text)
        return name if token.kind != "string" and name in field.values else None
    if token.kind == "string":
        return None
    if field.type == "bool":
        return {"0": False, "1": True}.get(text, _WORDS.get(text.lower()))
    if field.type in INTEGERS:
        return _whole(text, *_BOUNDS[field.type])
    if field.type in FLOATS or field.type in ARRAYS:
        return _number(text)
    return None


def _whole(text: str, least: int, bound: int) -> int | None:
    digits, sign = text.removeprefix("-"), -1 if text.startswith("-") else 1
    octal = len(digits) > 1 and digits.isdigit() and digits.startswith("0")
    try:
        value = sign * int(digits, 8 if octal else 0)
    except ValueError:
        return None
    return value if least <= value < bound else None


def _number(text: str) -> float | None:
    try:
        return float(int(text, 0)) if "x" in text.lower() else float(text.rstrip("fF") if "inf" not in text else text)
    except (ValueError, OverflowError):
        return None


def _accepted(field: FieldRow) -> str:
    if field.values is not None:
        return ", ".join(field.values)
    if field.type in INTEGERS:
        return "a whole number" + (" from 0" if field.type == "uint32" else "")
    return {"string": "a text in quotes", "bool": "true, false"}.get(field.type, "a number")


def _pack(found: CaffeMessage) -> None:
    """Arrays that were written as numbers become the bytes that they are on the wire."""
    for name, values in found.values.items():
        width = ARRAYS.get(kind(found.kind).fields[name].type)
        if width:
            code = "f" if width == 4 else "d"
            found.values[name] = [struct.pack(f"<{len(values)}{code}", *(_finite32(one, code) for one in values))]


def _finite32(value: float, code: str) -> float:
    return value if code == "d" or abs(value) < 3.5e38 else float("inf") * (1 if value > 0 else -1)
