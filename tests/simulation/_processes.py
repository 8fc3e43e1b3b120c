"""Processes of a simulated world: they can be killed, and stopped for a while as by SIGSTOP."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulation._network import Port
    from simulation._world import World


class Process:
    """Hears and does things only while it is up and not paused; what reaches it while it is paused waits, in order."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.up, self.paused = True, False
        self.ports: list[Port] = []
        self._waiting: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def do(self, call: Callable[..., None], *arguments: Any) -> None:
        """Do this now, if it can."""
        if self.paused:
            self._waiting.append((call, arguments))
        elif self.up:
            call(*arguments)

    def after(self, delay_s: float, call: Callable[..., None], *arguments: Any) -> None:
        """Do this in a while, if it then can."""
        self.world.after(delay_s, self.do, call, *arguments)

    def pause(self, for_s: float) -> None:
        """Stop it; everybody else only sees its silence."""
        if self.up and not self.paused:
            self.paused = True
            self.world.after(for_s, self._go_on)

    def kill(self) -> None:
        """End it without a word: whoever has a connection to it sees that end, after what was on its way."""
        self.up = self.paused = False
        self._waiting.clear()
        for port in self.ports:
            port.end()

    def _go_on(self) -> None:
        self.paused = False
        waiting, self._waiting = self._waiting, []
        for index, (call, arguments) in enumerate(waiting):
            if self.paused:
                self._waiting = waiting[index:] + self._waiting
                return
            self.do(call, *arguments)
