"""Every question that the page asks, by its path, and who answers it. The server and the report use the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from volary.errors import BadInput
from volary.page.questions import charts
from volary.page.questions.evaluations.confusion import confusion
from volary.page.questions.evaluations.texts import texts
from volary.page.questions.facts import facts
from volary.page.questions.histograms import histograms
from volary.page.questions.logs import logs
from volary.page.questions.network import network
from volary.page.questions.session_text import session_text
from volary.page.questions.staleness import staleness
from volary.page.questions.timeline import timeline
from volary.page.questions.usage import usage
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory

MOST_COLUMNS = 4000
LONGEST_WORD = 200


class Query:
    """The words of a question. Raises BadInput for what cannot be meant."""

    def __init__(self, words: Mapping[str, str]) -> None:
        self._words = words

    def text(self, name: str) -> str:
        """A word, empty if it was not said."""
        return self._words.get(name, "")[:LONGEST_WORD]

    def number(self, name: str) -> int | None:
        """A number that is not negative; None if it was not said. Raises BadInput for anything else."""
        text = self._words.get(name, "")
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= 15):
            raise BadInput(f"{name} is {text[:20]!r}; accepted: a whole number")
        return int(text)

    def view(self) -> tuple[int, int | None, int]:
        """First step, last step (None: the newest), and how many columns there is room for.

        Raises BadInput for anything else.
        """
        first, last = self.number("first") or 1, self.number("last")
        if last is not None and last < first:
            raise BadInput(f"first is {first} and last is {last}; accepted: first up to last")
        return first, last, max(1, min(MOST_COLUMNS, self.number("columns") or 600))


def _read(answer: Callable[[RunReader, Query], Any]) -> Callable[[RunDirectory, Query], Any]:
    def answered(directory: RunDirectory, query: Query) -> Any:
        with RunReader(directory) as reader:
            return answer(reader, query)

    return answered


ANSWERS: dict[str, Callable[[RunDirectory, Query], Any]] = {
    "facts": lambda directory, _: facts(directory),
    "steps": _read(lambda reader, query: charts.steps(reader, *query.view())),
    "phases": _read(lambda reader, query: charts.phases(reader, query.number("rank") or 0, *query.view())),
    "ranks": _read(lambda reader, query: charts.ranks(reader, *query.view())),
    "metric": _read(lambda reader, query: charts.metric(reader, query.text("name"), *query.view())),
    "timeline": _read(lambda reader, query: timeline(reader, query.number("step"))),
    "usage": _read(lambda reader, query: usage(reader, query.view()[2])),
    "histograms": _read(lambda reader, query: histograms(reader, query.text("name"))),
    "confusion": _read(lambda reader, _: confusion(reader)),
    "network": _read(lambda reader, _: network(reader)),
    "texts": _read(lambda reader, _: texts(reader)),
    "staleness": _read(lambda reader, _: staleness(reader)),
    "logs": lambda directory, query: logs(directory, query.text("words")),
    "session": lambda directory, _: session_text(directory),
}
