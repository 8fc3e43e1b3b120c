"""All that is wrong with a Caffe file, and all that is left out of it, one sentence each, with file, line and layer."""

from __future__ import annotations

from dataclasses import dataclass, field

from volary.errors import SettingError


@dataclass
class Findings:
    """Collects sentences on one file. file: its name in messages. ignored: what changes nothing, with the reason."""

    file: str
    found: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)  # those ignored: a layer may be there in both phases

    def add(self, sentence: str, line: int = 0, layer: str = "") -> None:
        """Note a problem. line: of the text, 0 if there is none; layer: the name of the layer that has it."""
        self.found.append(self._placed(sentence, line, layer))

    def ignore(self, sentence: str, line: int = 0, layer: str = "") -> None:
        """Note something that is read and has no effect."""
        if (text := self._placed(sentence, line, layer)) not in self._known:
            self._known.add(text)
            self.ignored.append(text)

    def raise_if_any(self) -> None:
        """Raise SettingError with every problem noted, a line each."""
        if self.found:
            raise SettingError("\n".join(dict.fromkeys(self.found)))

    def _placed(self, sentence: str, line: int, layer: str) -> str:
        place = f"{self.file}:{line}" if line else self.file
        return f"{place}: layer {layer!r}: {sentence}" if layer else f"{place}: {sentence}"
