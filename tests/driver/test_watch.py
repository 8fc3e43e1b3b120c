"""The watch: who counts as lost, and when. A plain state machine, so its clock is ours."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest

from volary.driver.seen import FEW_STEPS, FIRST_STEPS, KEPT_STEPS, Usual
from volary.driver.watch import Beat, Lost, Rules, Watch
from volary.run.verdict import Verdict

RULES = Rules(suspect_after_s=5, give_up_after_s=10, startup_timeout_s=120, stuck_after_s=60)
USED_TO_IT = FIRST_STEPS + FEW_STEPS + 1  # steps after which it is known what is usual


class Play:
    """A watch of two workers that both have come, and its clock. hosts: where they are, by rank."""

    def __init__(
        self, world_size: int = 2, come: int | None = None, hosts: str = "aaaa", rules: Rules = RULES, steps: int = 5
    ) -> None:
        self.watch = Watch(world_size, rules, now=100.0)
        self.now = 100.0
        self.beats: dict[int, Beat] = {}
        self.suspected: list[tuple[int, str]] = []
        self.sentences: list[str] = []
        self.asked: list[int] = []
        for rank in range(world_size if come is None else come):
            assert self.watch.joined(peer=rank, rank=rank, pid=1000 + rank, host=hosts[rank])
        for step in range(1, steps + 1):  # quick ones
            for rank in range(world_size if come is None else come):
                self.say(rank, "forward", step=step, rows=[[0.0]])
            self.go_on(0.3)

    def say(self, rank: int, phase: str, step: int = 3, progress: int | None = None, **more: object) -> None:
        """A worker beats, with progress unless told otherwise; from now on it repeats that."""
        last = self.beats.get(rank)
        progress = (last.progress + 1 if last else 0) if progress is None else progress
        self.beats[rank] = Beat(step, phase, progress)
        self.watch.heard(rank, Beat(step, phase, progress, **more))

    def go_on(self, seconds: float, silent: tuple[int, ...] = (), working: tuple[int, ...] = ()) -> list[Lost]:
        """Time passes; all but the silent repeat their last beat. Returns who is lost.

        working: those of the silent whose processes are seen to use the processor.
        """
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            self.asked += self.watch.tick(self.now)
            self.suspected += [(one.rank, one.kind) for one in self.watch.suspects]
            self.sentences += [one.sentence for one in self.watch.suspects]
            self.watch.suspects.clear()
            self.watch.observed(self.watch.quiet.intersection(silent), self.watch.quiet.intersection(working))
            for rank, beat in self.beats.items():
                if rank not in silent:
                    self.watch.heard(rank, beat)
        return self.watch.lost


# Silence


def test_silent_worker_is_suspected_and_then_given_up():
    play = Play()
    for _ in range(6):
        play.say(0, "forward")
        play.go_on(0.9, silent=(1,))
    assert play.suspected == [(1, "silent")]
    assert play.watch.lost == []
    play.say(0, "exchange")
    (lost,) = play.go_on(5, silent=(1,))
    assert (lost.rank, lost.kind) == (1, "silent")
    assert lost.sentence == "has been silent for 10 s: it is stopped, or its host is gone"
    assert play.asked == []  # whoever is silent cannot tell its stack


def test_worker_that_recovers_is_suspected_anew_the_next_time():
    play = Play()
    for _ in range(2):
        play.go_on(7, silent=(0,))
        play.say(0, "forward")
        play.say(1, "forward")
        play.go_on(1)
    assert play.suspected == [(0, "silent"), (0, "silent")]
    assert play.watch.lost == []


def test_worker_that_is_silent_while_it_starts_is_given_the_time_of_a_start():
    play = Play(steps=0)
    play.say(0, "exchange", step=0)
    play.say(1, "starting", step=0)  # imports torch
    assert play.go_on(55, silent=(1,)) == []
    assert play.suspected == []
    play.go_on(10, silent=(1,))
    assert play.suspected == [(1, "silent")]
    assert play.go_on(50, silent=(1,)) == []
    (lost,) = play.go_on(6, silent=(1,))
    assert (lost.rank, lost.kind) == (1, "silent")


def test_worker_whose_interpreter_is_held_but_whose_process_works_is_slow_and_not_silent():
    play = Play()
    play.say(0, "exchange")
    play.say(1, "forward")
    assert play.go_on(50, silent=(1,), working=(1,)) == []
    assert play.suspected == [(1, "stuck")]
    assert play.sentences == [
        "has not been heard of for 10 s, but its process is at work: a long call outside of Python holds the "
        "interpreter's lock; rank 0 waits for it"
    ]
    assert play.asked == []
    play.say(1, "exchange")
    assert play.go_on(5) == []
    assert play.go_on(11, silent=(1,))[0].kind == "silent"  # now it does not work


def test_worker_that_was_last_heard_of_in_the_exchange_is_waited_for_once_it_is_not_heard_of_though_it_works():
    play = Play()
    play.say(0, "exchange")
    play.say(1, "exchange")
    (lost,) = play.go_on(61, silent=(1,), working=(1,))
    assert (lost.rank, lost.kind) == (1, "stuck")


def test_one_worker_alone_that_is_stopped_on_this_machine_is_warned_of_and_waits_for_its_user():
    play = Play(world_size=1)
    assert play.go_on(300, silent=(0,)) == []
    assert play.suspected == [(0, "silent")]
    assert play.sentences == ["has been silent for 5 s: its process is stopped"]
    elsewhere = Play(world_size=1)
    for _ in range(110):  # nobody sees its process
        elsewhere.now += 0.1
        elsewhere.watch.tick(elsewhere.now)
    assert [lost.kind for lost in elsewhere.watch.lost] == ["silent"]


@pytest.mark.parametrize("asleep_s", [1.0, 30.0, 4000.0])
def test_watch_that_was_itself_stopped_blames_nobody_and_goes_on_watching(asleep_s):
    play = Play()
    for _ in range(20):
        play.now += asleep_s  # the server ticks before it reads what came meanwhile
        play.go_on(0.1)
        play.say(0, "forward")
        play.say(1, "forward")
    assert play.suspected == []
    play.go_on(10.5, silent=(1,))
    assert play.watch.lost[0].rank == 1


# No progress


def test_worker_that_others_wait_for_is_warned_of_with_its_stack_and_given_up_minutes_later():
    play = Play()
    play.say(0, "exchange")
    play.say(1, "forward")
    play.go_on(10.5)
    assert (play.suspected, play.asked) == ([], [1])  # it is given a moment to say where it is
    play.say(1, "forward", progress=play.beats[1].progress, stack="File x, in loop")
    assert play.go_on(0.2) == []
    assert play.suspected == [(1, "stuck")]
    assert play.sentences == ["is alive but has made no progress for 11 s, in forward; rank 0 waits for it"]
    assert play.go_on(49) == []
    assert play.asked == [1, 1]  # what is shown at the end is not minutes old
    play.say(1, "forward", progress=play.beats[1].progress, stack="File x, in loop, later")
    (lost,) = play.go_on(1)
    assert (lost.rank, lost.kind) == (1, "stuck")
    assert lost.sentence == "is alive but has made no progress for 60 s, in forward; rank 0 waits for it"
    assert play.watch.workers[1].stack == "File x, in loop, later"


def test_worker_that_does_not_say_where_it_is_is_warned_of_all_the_same():
    play = Play()
    play.say(0, "exchange")
    play.go_on(12)
    assert play.suspected == [(1, "stuck")]


def test_forward_of_25_seconds_after_quick_steps_goes_on():
    play = Play(steps=20)
    play.say(0, "exchange")
    play.say(1, "forward")
    assert play.go_on(25) == []
    play.say(1, "backward")
    assert play.go_on(2) == []
    assert play.suspected == [(1, "stuck")]


@pytest.mark.parametrize("phase", ["forward", "between steps", "evaluate", "checkpoint", "starting"])
def test_one_worker_alone_is_never_given_up_for_want_of_progress(phase):
    play = Play(world_size=1)
    play.say(0, phase)
    assert play.go_on(700) == []
    assert play.suspected == [(0, "stuck")]
    assert play.sentences[0].endswith(f", in {phase}; nobody waits for it")


def test_nobody_is_given_up_while_nobody_waits():
    play = Play(world_size=3)
    for rank in range(3):
        play.say(rank, "between steps")
    assert play.go_on(700) == []


def test_time_runs_from_when_somebody_comes_to_wait():
    play = Play()
    play.say(0, "forward")
    play.say(1, "forward")
    play.go_on(500)
    play.say(0, "exchange")
    assert play.go_on(59) == []
    (lost,) = play.go_on(2)
    assert lost.rank == 1
    assert "has made no progress for 560 s" in lost.sentence


def test_worker_that_waits_is_never_blamed_however_slow_the_other_is_while_it_moves():
    play = Play()
    play.say(0, "exchange")
    play.say(1, "forward")
    for _ in range(30):
        assert play.go_on(55) == []
        play.say(1, "forward")
    assert {rank for rank, _ in play.suspected} == {1}


def test_all_that_are_waited_for_are_named_and_none_that_waits():
    play = Play(world_size=4)
    for rank, phase in enumerate(("exchange", "forward", "exchange", "backward")):
        play.say(rank, phase)
    lost = play.go_on(61)
    assert [(one.rank, one.kind) for one in lost] == [(1, "stuck"), (3, "stuck")]
    assert lost[0].sentence.endswith("in forward; ranks 0, 2 wait for it")


def test_worker_without_anything_to_do_waits_for_those_that_work():
    play = Play()  # as in a run with servers, at the end of an epoch
    play.say(0, "idle")
    play.say(1, "forward")
    (lost,) = play.go_on(61)
    assert lost.rank == 1


def test_nobody_counts_as_stuck_while_somebody_is_silent():
    play = Play()
    play.say(0, "forward")  # stands still since before rank 1 fell silent
    play.go_on(1)
    play.say(1, "forward")
    lost = play.go_on(30, silent=(1,))
    assert [(one.rank, one.kind) for one in lost] == [(1, "silent")]


def test_stack_of_a_standstill_that_is_over_is_forgotten():
    play = Play()
    play.say(0, "exchange")
    play.go_on(10.5)
    play.say(1, "forward", progress=play.beats[1].progress, stack="import torch")
    play.go_on(1)
    play.say(1, "backward")
    assert play.watch.workers[1].stack == ""
    play.go_on(11)
    assert play.asked == [1, 1]


def test_worker_that_does_not_come_is_missing_and_the_others_are_not_blamed_for_waiting():
    play = Play(come=1, steps=0)
    play.say(0, "exchange", step=0)
    assert play.go_on(119) == []
    (lost,) = play.go_on(2)
    assert (lost.rank, lost.kind, lost.sentence) == (1, "missing", "did not come within 120 s")


def test_start_that_others_wait_for_may_take_its_own_time():
    play = Play(steps=0, rules=replace(RULES, stuck_after_s=3))
    play.say(0, "exchange", step=0)
    play.say(1, "starting", step=0)
    assert play.go_on(119) == []
    (lost,) = play.go_on(2)
    assert (lost.rank, lost.kind) == (1, "stuck")


@pytest.mark.parametrize(("stuck_after_s", "bound_s"), [(3, 120), (600, 600)])
def test_first_step_of_a_life_may_take_as_long_as_the_start_or_as_any_other(stuck_after_s, bound_s):
    play = Play(steps=0, rules=replace(RULES, stuck_after_s=stuck_after_s))
    play.say(0, "exchange", step=500)  # no rows: no step was done in this life
    play.say(1, "forward", step=500)
    assert play.go_on(bound_s - 1) == []
    assert len(play.go_on(2)) == 1


# What is usual


def test_phase_that_is_usually_slow_is_worth_a_warning_after_five_times_that():
    play = Play(steps=FIRST_STEPS, rules=replace(RULES, stuck_after_s=600))
    for step in range(USED_TO_IT):
        play.say(1, "forward", step=step)
        play.say(0, "exchange", step=step)
        play.go_on(4)
        play.say(1, "backward", step=step)
        play.go_on(0.2)
    play.say(1, "forward")
    play.go_on(19)
    assert play.suspected == []
    play.go_on(3)
    assert play.suspected == [(1, "stuck")]
    play.say(1, "backward")  # usually quick
    play.go_on(12)
    assert play.suspected == [(1, "stuck"), (1, "stuck")]


def test_what_is_usual_is_a_quantile_of_recent_steps_that_a_few_slow_ones_do_not_change():
    usual = Usual()
    assert usual.seconds is None
    for step in range(KEPT_STEPS):
        usual.add(step, 20.0 if step in (3, 17) else 0.1)
        usual.add(step, 0.05)  # of a step the longest counts
    assert usual.seconds == 0.1
    for step in range(KEPT_STEPS, KEPT_STEPS + 8):
        usual.add(step, 20.0)
    assert usual.seconds == 20.0
    for step in range(100, 100 + KEPT_STEPS):
        usual.add(step, 0.1)
    assert usual.seconds == 0.1


# All wait for each other


def together(play: Play, steps: int, wait_s: float = 0.2) -> None:
    """Steps in which all wait for each other for so long."""
    first = 1 + max((beat.step for beat in play.beats.values()), default=0)
    for step in range(first, first + steps):
        for rank in play.watch.workers:
            play.say(rank, "forward", step=step, rows=[[0.0]])
        for rank in play.watch.workers:
            play.say(rank, "exchange", step=step)
        play.go_on(wait_s)


def test_link_that_is_cut_between_hosts_is_told_within_seconds_without_blaming_anybodys_code():
    play = Play(hosts="ab")
    together(play, USED_TO_IT)
    play.say(0, "exchange", step=14)
    play.say(1, "exchange", step=13)
    (lost,) = play.go_on(10.5)
    assert (lost.rank, lost.kind) == (1, "cut")
    assert lost.sentence == ("waits in the exchange, like all others, for 10 s: a link between hosts may be cut (a, b)")
    assert play.asked == []


def test_slow_start_and_a_slow_moment_do_not_raise_the_bound_of_a_cut_link():
    play = Play(hosts="ab", steps=0)
    together(play, FIRST_STEPS, wait_s=60)
    together(play, USED_TO_IT)
    together(play, 1, wait_s=9)
    together(play, 20)
    assert play.watch.lost == []
    assert len(play.go_on(10.5)) == 1


def test_exchange_that_is_always_slow_is_given_five_times_that():
    play = Play(hosts="ab")
    together(play, FIRST_STEPS + 1)
    together(play, KEPT_STEPS, wait_s=8)
    assert play.go_on(31) == []
    assert len(play.go_on(3)) == 1


def test_time_of_a_cut_link_runs_from_when_the_last_one_came_to_wait():
    play = Play(hosts="ab")
    together(play, USED_TO_IT)
    play.say(0, "exchange")
    play.say(1, "forward")
    play.go_on(9)
    play.say(1, "exchange")  # rank 0 has stood still for 9 s, but only now they all wait
    assert play.go_on(4.5) == []
    assert play.suspected == []


def test_workers_of_one_machine_that_all_wait_are_slow_for_minutes_before_they_are_stuck():
    play = Play()
    together(play, USED_TO_IT)
    assert play.go_on(59) == []
    assert play.suspected == [(0, "stuck")]
    (lost,) = play.go_on(2)
    assert lost.sentence == "waits in the exchange, like all others, for 60 s"


def test_workers_of_one_machine_that_wait_in_different_steps_are_told_so():
    play = Play(rules=replace(RULES, own_loop=True))
    together(play, USED_TO_IT)
    play.say(0, "exchange", step=21)
    play.say(1, "exchange", step=19)
    (lost,) = play.go_on(61)
    assert lost.rank == 1
    assert lost.sentence.startswith(
        "waits in the exchange, like all others, for 60 s: they are at different steps (rank 0 in step 22, rank 1 in "
        "step 20); all workers must take the same number of steps"
    )


def test_servers_on_another_host_make_a_link_that_may_be_cut():
    play = Play(rules=replace(RULES, keeper_host="b"))
    together(play, USED_TO_IT)
    assert play.go_on(10.5)[0].kind == "cut"


def test_workers_that_have_nothing_to_do_wait_for_no_link():
    play = Play(hosts="ab")
    together(play, USED_TO_IT)
    play.say(0, "idle")
    play.say(1, "idle")  # the servers save
    assert play.go_on(59) == []


def test_worker_that_left_its_own_loop_early_is_named_and_the_one_that_waits_for_it_is_not():
    play = Play(rules=replace(RULES, own_loop=True))
    together(play, USED_TO_IT)
    play.say(0, "exchange", step=20)
    play.say(1, "between steps", step=20, bye=Verdict(rank=1, outcome="finished", step=20))
    assert play.go_on(9) == []
    (lost,) = play.go_on(2)
    assert (lost.rank, lost.kind) == (1, "left")
    assert lost.sentence == (
        "has left its training loop after step 20, and rank 0 waits in step 21: all workers must take the same number "
        "of steps: let worker.feed share the samples, or end every worker's loop after the same step"
    )


def test_worker_that_works_on_after_the_others_have_left_is_not_hurried():
    play = Play(rules=replace(RULES, own_loop=True))
    play.say(1, "between steps", bye=Verdict(rank=1, outcome="finished", step=3))
    play.say(0, "evaluate")
    assert play.go_on(700) == []


# Coming and going


def test_connection_that_ends_without_a_goodbye_is_a_death_unless_it_comes_back_and_with_one_is_none():
    play = Play()
    bye = Verdict(rank=0, outcome="finished", step=9)
    play.say(0, "between steps", bye=bye)
    play.watch.heard(0, Beat(9, "between steps", 99))  # a beat that was on its way changes nothing
    play.watch.left(0)
    assert play.watch.lost == []
    play.watch.left(1)
    assert play.go_on(2.9) == []
    assert not play.watch.joined(peer=6, rank=1, pid=7, host="a")  # somebody else
    assert play.watch.joined(peer=7, rank=1, pid=1001, host="a")
    assert play.go_on(2.9) == []
    play.watch.left(1)  # of the connection that was replaced
    assert play.watch.workers[1].here
    play.watch.left(7)
    assert play.go_on(3.2) == [Lost(1, "died", "died")]
    assert not play.watch.joined(peer=8, rank=1, pid=1001, host="a")
    assert play.watch.everyone_left
    assert play.watch.workers[0].goodbye == bye


def test_who_is_away_when_the_run_ends_has_died():
    play = Play()
    play.watch.left(1)
    play.watch.conclude()
    assert play.watch.lost == [Lost(1, "died", "died")]


def test_place_is_given_once():
    play = Play(come=1)
    assert not play.watch.joined(peer=7, rank=0, pid=5, host="there")
    assert not play.watch.joined(peer=8, rank=2, pid=5, host="there")
    assert play.watch.worker_at(7) is None
    play.watch.heard(7, Beat(1, "forward", 1))
    play.watch.left(7)
    assert play.watch.lost == []


def test_run_that_goes_on_without_a_silent_worker_judges_those_that_are_left_as_before():
    play = Play(world_size=3)
    for _ in range(12):
        play.say(0, "forward")
        play.say(1, "forward")
        play.go_on(0.9, silent=(2,))
    assert [lost.rank for lost in play.watch.lost] == [2]
    play.watch.dismiss(2)
    play.say(0, "exchange")
    lost = play.go_on(61, silent=(2,))
    assert [(one.rank, one.kind) for one in lost] == [(2, "silent"), (1, "stuck")]


def test_worker_that_comes_back_after_it_was_given_up_is_not_heard():
    play = Play(steps=0)
    for _ in range(12):
        play.say(0, "forward")
        play.go_on(0.9, silent=(1,))
    play.watch.dismiss(1)
    play.watch.heard(1, Beat(9, "forward", 9))
    assert play.watch.workers[1].step == 0
    assert not play.watch.joined(peer=5, rank=1, pid=77, host="here")


PHASES = ("data", "forward", "backward", "exchange", "optimizer")
SIMULATED = replace(RULES, stuck_after_s=40)
SLOWEST_S = 15.0


@dataclass
class Acted:
    """A worker of the simulation. until: when its phase ends; infinite while it waits for others."""

    rank: int
    draw: random.Random
    step: int = 0
    phase: int = 0
    progress: int = 0
    until: float = 0.0
    rows: int = 0
    next_beat: float = 0.0
    trouble: str = ""
    inbox: list[Beat] = field(default_factory=list)

    def act(self, now: float, arrived: bool) -> None:
        """Go on to the next phase when this one is over. arrived: whether all others have come as far."""
        if now < self.until or self.trouble in ("hangs", "stops", "holds"):
            return
        if PHASES[self.phase] == "exchange" and not arrived:
            return
        self.phase = (self.phase + 1) % len(PHASES)
        if self.phase == 0:
            self.step, self.rows = self.step + 1, self.rows + 1
        slow_s = SLOWEST_S if self.draw.random() < 0.02 and PHASES[self.phase] != "exchange" else 3.0
        self.until, self.progress = now + self.draw.choice((0.01, 0.05, 0.3, slow_s)), self.progress + 1

    def beat(self, now: float) -> None:
        """Beat, with some delay of its thread, unless stopped, or a call holds the interpreter."""
        if now >= self.next_beat and self.trouble not in ("stops", "holds"):
            self.inbox.append(Beat(self.step, PHASES[self.phase], self.progress, rows=[[0.0]] * self.rows))
            self.rows, self.next_beat = 0, now + 0.25 + self.draw.random()


class World:
    """Some workers in step, one of which may get into trouble, and a driver that is now and then kept from running.

    Any of their phases may take long. hosts: there may be more than one.
    """

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.workers = [Acted(rank, self.draw) for rank in range(self.draw.randint(1, 5))]
        self.watch = Watch(len(self.workers), SIMULATED, now=0.0)
        for worker in self.workers:
            self.watch.joined(worker.rank, worker.rank, 1000 + worker.rank, self.draw.choice("ab"))
        self.trouble = self.draw.choice(("", "hangs", "stops", "dies", "holds"))
        self.victim = self.draw.choice(self.workers)
        self.from_s = 20 + 40 * self.draw.random()
        self.lost_sight_s = 0.0
        self.suspects: list[Lost] = []

    def play(self, until_s: float) -> float | None:
        """Play; when the first one was given up."""
        now, next_look = 0.0, 0.0
        while now < until_s:
            now += 0.05
            if self.trouble and now >= self.from_s and self.victim.step and not self.victim.trouble:
                self._strike(now)
            for worker in self.workers:
                place = (worker.step, worker.phase)
                worker.act(now, all((other.step, other.phase) >= place for other in self.workers))
                worker.beat(now)
            if now >= next_look:
                asleep_s = self.draw.choice((0.1,) * 400 + (3.0, 30.0))
                next_look = now + asleep_s
                self.lost_sight_s += asleep_s - 0.1
                self._look(now)
            if self.watch.lost:
                return now
        return None

    def _strike(self, now: float) -> None:
        waits = PHASES[self.victim.phase] == "exchange"
        if self.trouble in ("hangs", "holds") and waits:
            return  # user's code does not run there
        self.victim.trouble, self.from_s = self.trouble, now
        if self.trouble == "dies":
            self.watch.left(self.victim.rank)

    def _look(self, now: float) -> None:
        self.watch.tick(now)  # as the server does: first the clock, then what has come
        self.suspects += self.watch.suspects
        self.watch.suspects.clear()
        here = {worker.rank for worker in self.workers}
        working = {worker.rank for worker in self.workers if worker.trouble != "stops"}
        self.watch.observed(self.watch.quiet & here, self.watch.quiet & working)
        for worker in self.workers:
            for beat in worker.inbox:
                self.watch.heard(worker.rank, beat)
            worker.inbox.clear()


@pytest.mark.parametrize("block", range(4))
def test_no_healthy_worker_is_given_up_and_every_lost_one_is_named_within_its_bound(block):
    for seed in range(block * 50, block * 50 + 50):
        world = World(seed)
        given_up_at = world.play(until_s=300)
        lost, alone = world.watch.lost, len(world.workers) == 1
        healthy = [one for one in world.suspects if one.kind != "stuck"]
        if not world.victim.trouble:
            assert (lost, healthy) == ([], []), f"World({seed}).play(300)"
            continue
        if alone and world.trouble != "dies":
            assert lost == [], f"World({seed}).play(300)"
            continue
        kind = {"hangs": "stuck", "holds": "stuck", "stops": "silent", "dies": "died"}[world.trouble]
        assert (lost[0].rank, lost[0].kind) == (world.victim.rank, kind), f"World({seed}).play(300)"
        if world.trouble != "dies":
            assert lost[0].rank in {one.rank for one in world.suspects}, f"World({seed}).play(300)"
        # others may still be on their way to where they wait
        minutes_s = SIMULATED.stuck_after_s + 2 * SLOWEST_S
        bound_s = {"hangs": minutes_s, "holds": minutes_s, "stops": 10, "dies": 3}[world.trouble]
        assert given_up_at is not None
        assert given_up_at - world.from_s <= bound_s + 2 + world.lost_sight_s, f"World({seed}).play(300)"
