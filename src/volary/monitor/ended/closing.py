"""The last words about a run: the result, where it is stored, what to do next."""

from __future__ import annotations

from volary.monitor.digest import Digest
from volary.monitor.wording import duration, measured, place
from volary.run.resuming import resuming

_NEXT = {
    "finished": ("show", "evaluate", "export"),
    "stopped": ("show",),
}


def verdict(digest: Digest) -> str:
    """One line: the state, how far it came, how long it took, and, of a run that did not fail, the newest metrics."""
    took = f" in {duration(digest.elapsed_s)}" if digest.elapsed_s is not None else ""
    evaluated = digest.evaluated if digest.state != "failed" else None
    values = f": {measured(evaluated.values, digest.metric)}" if evaluated else ""
    return f"{digest.state} at step {digest.step}{took}{values}"


def one_line(digest: Digest) -> str:
    """The one line that `--quiet` leaves: the verdict, and where the run is stored."""
    return f"{digest.directory.name} {verdict(digest)} ({place(digest.directory.path)})"


def closing(digest: Digest, *, drawn: bool = False) -> list[tuple[str, str]]:
    """Rows of (label, text). Of a failed run the last is its state: the error itself follows, by whom it reached.

    drawn: which run this is and its best value stand in the picture above.
    """
    state = (digest.state, verdict(digest).removeprefix(f"{digest.state} "))
    run = [] if drawn else [("run", place(digest.directory.path))]
    if digest.state == "failed":
        return [*run, state]
    rows = [state]
    if digest.best and not drawn:
        rows.append(("best", f"{measured(digest.best.values)} at step {digest.best.step}"))
    rows += run
    # a loop of one's own keeps its own state: Volary has nothing to evaluate or export
    verbs = ("show",) if digest.session.own_loop else _NEXT.get(digest.state, ())
    following = [f"volary {verb} {digest.directory.argument}" for verb in verbs]
    if digest.state == "stopped" and (how := resuming(digest.directory)):
        following.insert(0, how)
    rows += [("" if number else "next", text) for number, text in enumerate(following)]
    return rows
