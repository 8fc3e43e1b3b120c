"""No progress: who stands still, who waits for whom, for how long, and what follows. Plain functions of what is seen.

Slow is not stuck. A rank that stands still is warned of, and given up only once somebody has waited for it for very
long. Ranks that wait are never blamed. If all wait for each other, what is seen tells which of three things it is: a
rank has left the user's loop, a link between hosts is cut, or ranks are at different steps. Nobody stands still who
sends or receives, as long as bytes move: a slow link is not cut.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from volary.driver.watching.worker_status import (
    FIRST_STEPS,
    RARE,
    STARTING,
    WAITING,
    LostWorker,
    Rules,
    Trouble,
    WorkerStatus,
)

SLOW_FACTOR = 5.0  # times what is usual may something take before it is worth a warning
WARN_AFTER_S = 10.0  # and never before
STACK_WITHIN_S = 1.0  # the time that a worker has to say what its threads are in
SAME_CALLS = "all workers must make the same calls in the same order"
SAME_STEPS = (
    "all workers must take the same number of steps: let worker.feed share the samples, or end every worker's loop "
    "after the same step"
)
SAME_PASSES = "all workers must call backward() as often as each other in each step"


def is_mute(worker: WorkerStatus, rules: Rules, now_s: float) -> bool:
    """Whether it does not beat although its process uses the processor: something holds the interpreter's lock."""
    if now_s - worker.last_beat_at <= rules.suspect_after_s or worker.worked_at is None:
        return False
    return now_s - worker.worked_at <= rules.suspect_after_s


def standing_still(
    workers: Collection[WorkerStatus], rules: Rules, usual_wait_s: float | None, now_s: float
) -> Iterator[Trouble]:
    """Report workers that make no progress. usual_wait_s: for how long all wait in a usual step; None if unknown."""
    here = [worker for worker in workers if worker.counts]
    waiting = [worker for worker in here if worker.phase in WAITING and not is_mute(worker, rules, now_s)]
    working = [worker for worker in here if worker not in waiting]
    for worker in working:
        yield from _standing_still(worker, waiting, rules, now_s)
    if here and not working and all(worker.pid or worker.dismissed for worker in workers):
        yield from _all_waiting(here, workers, rules, usual_wait_s, now_s)


def _standing_still(
    worker: WorkerStatus, waiting: Sequence[WorkerStatus], rules: Rules, now_s: float
) -> Iterator[Trouble]:
    still_s = now_s - worker.still_since
    waited_s = min(still_s, max((now_s - one.moved_at for one in waiting), default=0.0))
    limit_s = _limit_s(worker, rules)
    if still_s <= min(_warn_after_s(worker, rules), limit_s / 2):
        return
    if is_mute(worker, rules, now_s):
        silent_s = now_s - worker.last_beat_at
        what = (
            f"has not been heard of for {silent_s:.0f} s, but its process is at work: a long call outside of Python "
            f"holds the interpreter's lock"
        )
    else:
        what = f"is alive but has made no progress for {still_s:.0f} s, in {worker.phase}"
    who = f"{ranks(waiting)} wait{'s' * (len(waiting) == 1)} for it" if waiting else "nobody waits for it"
    lost = LostWorker(worker.rank, "stuck", f"{what}; {who}")
    yield Trouble(lost, over=waited_s > limit_s, almost=waited_s > limit_s - STACK_WITHIN_S)


def _all_waiting(
    here: Sequence[WorkerStatus],
    workers: Collection[WorkerStatus],
    rules: Rules,
    usual_wait_s: float | None,
    now_s: float,
) -> Iterator[Trouble]:
    """Report that all wait for each other, from when the last one began to; it names who is furthest behind."""
    left = [one for one in workers if one.goodbye and one.goodbye.outcome == "finished"] if rules.own_loop else []
    still_s = now_s - max([*(worker.still_since for worker in here), *(one.last_beat_at for one in left)])
    named = min(here, key=lambda worker: worker.step)
    hosts = sorted({worker.host for worker in here} | ({rules.keeper_host} - {""}))
    usual_s = SLOW_FACTOR * (usual_wait_s or 0.0)
    quick_s = max(rules.give_up_after_s, usual_s)
    if left and all(worker.stepped for worker in here):
        named = min(left, key=lambda one: one.step)
        lost, limit_s = LostWorker(named.rank, "left", left_early(named.step, here)), quick_s
    elif len(here) == 1:  # nobody of ours keeps it waiting
        lost, limit_s = LostWorker(named.rank, "stuck", f"waits for {still_s:.0f} s, in {named.phase}"), float("inf")
    elif len({worker.call for worker in here}) > 1:  # no link and no patience would bring them together
        places = ", ".join(f"rank {one.rank} in {one.call or 'its training'} {_step_of(one)}" for one in here)
        sentence = f"waits, like all others, for {still_s:.0f} s, and not for the same: {places}; {SAME_CALLS}"
        lost, limit_s = LostWorker(named.rank, "parted", sentence), quick_s
    elif len(hosts) > 1 and any(worker.phase == "exchange" for worker in here):
        sentence = f"waits in the exchange, like all others, for {still_s:.0f} s: a link between hosts may be cut"
        lost = LostWorker(named.rank, "cut", f"{sentence} ({', '.join(hosts)})")
        limit_s = rules.startup_timeout_s if usual_wait_s is None else quick_s
    else:
        sentence = f"waits in the exchange, like all others, for {still_s:.0f} s{_at_steps(here, rules)}"
        lost, limit_s = LostWorker(named.rank, "stuck", sentence), _limit_s(named, rules)
    by_link_s = still_s if lost.kind == "cut" else 0.0
    suspect_s = rules.suspect_after_s if lost.kind in ("cut", "left", "parted") else WARN_AFTER_S
    if still_s > min(max(suspect_s, usual_s), limit_s / 2):
        yield Trouble(lost, by_link_s, over=still_s > limit_s, almost=still_s > limit_s - STACK_WITHIN_S)


def left_early(step: int, waiting: Sequence[WorkerStatus]) -> str:
    """Say that a worker has left the user's loop after `step` while others still wait in theirs."""
    verb = "waits" if len(waiting) == 1 else "wait"
    at = min(one.step for one in waiting) + 1
    accepted = SAME_STEPS if at > step else SAME_PASSES
    return f"has left its training loop after step {step}, and {ranks(waiting)} {verb} in step {at}: {accepted}"


def ranks(workers: Sequence[WorkerStatus]) -> str:
    """How a sentence names these workers: `rank 1`, `ranks 0, 2`."""
    return f"rank{'s' * (len(workers) > 1)} {', '.join(str(worker.rank) for worker in workers)}"


def _step_of(worker: WorkerStatus) -> str:
    return f"after step {worker.step}" if worker.call else f"of step {worker.step + 1}"


def _at_steps(here: Sequence[WorkerStatus], rules: Rules) -> str:
    """Say who is in which step, if they differ."""
    if len({worker.step for worker in here}) == 1:
        return ""
    places = ", ".join(f"rank {worker.rank} in step {worker.step + 1}" for worker in here)
    return f": they are at different steps ({places})" + (f"; {SAME_STEPS}" if rules.own_loop else "")


def _limit_s(worker: WorkerStatus, rules: Rules) -> float:
    """How long others wait for a worker that stands still."""
    if worker.phase == STARTING:
        return rules.startup_timeout_s
    return rules.stuck_after_s if worker.stepped else max(rules.startup_timeout_s, rules.stuck_after_s)


def _warn_after_s(worker: WorkerStatus, rules: Rules) -> float:
    """Seconds after which a standstill is worth a warning."""
    usual = worker.usual.get(worker.phase)
    usual_s = usual.seconds if usual else None
    if usual_s is None and (worker.done <= FIRST_STEPS or worker.phase in RARE):
        return rules.startup_timeout_s / 2
    return max(WARN_AFTER_S, SLOW_FACTOR * (usual_s or 0.0))
