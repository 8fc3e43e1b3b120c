"""Deaths of workers at named places of a loop of a user's own, in programs that tests start."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Sequence

from volary.errors import PeerLost
from volary.train.own.recovering.loop_members import LoopMembers


def deaths_of(
    rank: int, deaths: Iterable[Sequence[object]], deaf: Iterable[int], iterations: Callable[[], int]
) -> Callable[[str], None]:
    """Return a function that a loop calls with the name of each of its places, where this process may kill itself.

    deaths: rank, iterations done, and place. deaf: rank and iterations of one that does not hear that a step counts.
    """
    places, unheard, end = [list(one) for one in deaths], list(deaf), LoopMembers._end

    def dies(where: str) -> None:
        if [rank, iterations(), where] in places:
            os.kill(os.getpid(), signal.SIGKILL)

    def last_word(members: LoopMembers) -> None:
        dies("word")
        end(members)
        dies("heard")
        if [rank, iterations()] == unheard:
            raise PeerLost("did not hear it")

    LoopMembers._end = last_word  # type: ignore[method-assign]
    return dies
