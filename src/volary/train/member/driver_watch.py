"""Detects, in a worker, that the driver no longer answers: a plain state machine, its clock handed in.

A worker that is without a driver finishes its step and saves, if it can. It may take as long as that takes, while it
makes progress; one that makes none, as the others have gone or its own code hangs, is overdue after some seconds. If
another driver may take the place of the lost one, the worker trains on, and is without one only after `wait_s` more.
"""

from __future__ import annotations

LOOK_S = 0.5  # at most this much time is seen to pass between two looks: who was stopped itself blames nobody for it
REFUSED_S = 1.0  # where nothing listens any more, nobody comes back
LONG_S = 2.0  # a wait without progress in which bytes move: what the driver says may be behind them
FINISH_S = 4.0  # without progress, once there is no driver
SLOW_FACTOR = 3.0  # or so many times as long as the newest step took
MOST_S = 600.0  # for the step, what is due after it, and the checkpoint


class DriverWatch:
    """Silent for `give_up_after_s`, or gone: `missing` says it in words, until one answers. After `wait_s` more `lost`
    says so, and stays.

    saves: whether this worker ends with a checkpoint, which takes what disks take.
    """

    def __init__(self, give_up_after_s: float, now: float) -> None:
        self.missing = self.lost = ""
        self.wait_s = 0.0
        self.saves = False
        self._give_up_after_s = give_up_after_s
        self._clock = now
        self._seen_s = self._answered_s = self._moved_s = self._missing_s = self._lost_s = 0.0
        self._refused_s: float | None = None
        self._progress = -1
        self._saves_before = 0
        self._saves_now = 0
        self._step_s = 0.0

    def answered(self) -> None:
        """Note that something has come from the driver."""
        self._answered_s, self._refused_s, self.missing = self._seen_s, None, ""

    def refused(self) -> None:
        """Note that nothing listens at the driver's address."""
        if self._refused_s is None:
            self._refused_s = self._seen_s

    def look(self, now: float, *, progress: int, step_s: float, saves: int, carries: bool = False) -> None:
        """Time has passed, and this worker has done so much (see `Recorder`).

        carries: its connections have moved bytes. Over a slow link the driver's answers queue behind them: that is no
        silence.
        """
        passed_s = min(now - self._clock, LOOK_S)
        self._seen_s += passed_s
        self._clock, self._step_s, self._saves_now = now, step_s, saves
        if progress != self._progress:
            self._progress, self._moved_s = progress, self._seen_s
        if self.lost:
            return
        if carries and self._seen_s - self._moved_s > LONG_S:
            self._answered_s = min(self._answered_s + passed_s, self._seen_s)
        silent_s = self._seen_s - self._answered_s
        if not self.missing:
            self._missing_s = self._seen_s
            if self._refused_s is not None and self._seen_s - self._refused_s > REFUSED_S:
                self.missing = "the driver has ended: nothing listens any more where it did"
            elif silent_s > self._give_up_after_s:
                self.missing = f"the driver has not answered for {silent_s:.0f} s: it is stopped, or cut off"
        if self.missing and self._seen_s - self._missing_s >= self.wait_s:
            no_other = f"; no other one has come for {self.wait_s:.0f} s" if self.wait_s else ""
            self.lost = self.missing + no_other
            self._lost_s, self._saves_before = self._seen_s, saves

    @property
    def overdue(self) -> bool:
        """Whether this worker must go now, whatever it is in."""
        if not self.lost:
            return False
        bound_s = max(FINISH_S, SLOW_FACTOR * self._step_s)
        alone_s = self._seen_s - self._lost_s
        if not self.saves:
            return alone_s > bound_s
        saving = self._saves_now > self._saves_before
        still_s = self._seen_s - max(self._moved_s, self._lost_s)
        return alone_s > MOST_S or (still_s > bound_s and not saving)
