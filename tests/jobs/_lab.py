"""A machine in memory that a runner of the queue acts on: runs, their directories, a clock; and a table of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any

import msgspec

from volary.jobs.entry import Capacity, Demand, HostCapacity, QueueEntry
from volary.jobs.runner import Moment, QueueRunner


class KilledError(Exception):
    """The runner was killed here."""


@dataclass
class Program:
    """A run as its directory has it: what it does, how it stands, and the numbers of its attempts."""

    lasts_s: float
    ends: list[str]  # of its attempts, in turn; the last counts for all others
    done_s: float = 0.0
    life: int = -1
    state: str = "queued"
    alive: bool = False
    begins_at_s: float = inf
    asked: bool = False
    drivers: int = 0  # that were alive at the same time, at most
    cores: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    host: str = ""
    memory_bytes: int = 0
    after: tuple[str, ...] = ()


@dataclass
class Lab:
    """Table and machinery in one, whose every call may be the one in which the runner is killed."""

    capacity_: Capacity
    rows: dict[str, QueueEntry] = field(default_factory=dict)
    runs: dict[str, Program] = field(default_factory=dict)
    now_s: float = 0.0
    boot: str = "0"
    calls: int = 0
    longest_look: int = 30  # in calls
    killed_at: float = inf
    left: list[str] = field(default_factory=list)
    cancelled: set[str] = field(default_factory=set)

    def _call(self) -> None:
        self.calls += 1
        if self.calls >= self.killed_at:
            self.killed_at = inf
            raise KilledError

    # the table

    def entries(self) -> list[QueueEntry]:
        self._call()
        return list(self.rows.values())

    def change(self, run: str, how: Callable[[QueueEntry], QueueEntry | None]) -> QueueEntry | None:
        self._call()
        if run not in self.rows or (entry := how(self.rows[run])) is None:
            return None
        self.rows[run] = entry
        self._call()
        return entry

    def remove(self, run: str) -> None:
        self._call()
        del self.rows[run]
        self.left.append(run)
        self._call()

    # the machinery

    def moment(self) -> Moment:
        return Moment(self.boot, self.now_s)

    def capacity(self, entries: object) -> Capacity:
        return self.capacity_

    def expect(self, entry: object) -> None:
        self._call()

    def learnt(self, entries: object) -> dict[str, tuple[int, str]]:
        return {}

    def ends(self, entries: object) -> dict[str, float]:
        return {}

    def unsaved(self, entries: object) -> set[str]:
        return set()

    def is_alive(self, entry: QueueEntry) -> bool:
        self._call()
        return self.runs[entry.run].alive

    def exists(self, entry: QueueEntry) -> bool:
        return True

    def attempt(self, entry: QueueEntry) -> int:
        return self.runs[entry.run].life

    def start(self, entry: QueueEntry) -> int:
        self._call()
        run = self.runs[entry.run]
        run.state = "queued"
        self._call()
        assert not run.alive, "started twice"
        fewest, most = entry.between or (entry.demand.cores, entry.demand.cores)
        assert fewest <= len(entry.given.cores) == entry.demand.cores <= most
        run.alive, run.begins_at_s, run.asked = True, self.now_s + 1, False
        run.cores, run.gpus, run.memory_bytes = entry.given.cores, entry.given.gpus, entry.demand.memory_bytes
        run.host = entry.given.host
        self._call()
        return 7

    def used_bytes(self, entry: QueueEntry) -> int:
        return 0

    def keep_used(self, entry: QueueEntry, how: str) -> None:
        self._call()

    def ask_to_stop(self, entry: QueueEntry) -> None:
        self._call()
        if self.runs[entry.run].state == "running":
            self.runs[entry.run].asked = True

    def how_ended(self, entry: QueueEntry) -> str:
        self._call()
        run = self.runs[entry.run]
        if run.life <= entry.attempt:
            return "not begun"
        return "lost" if run.state == "running" else run.state

    def unfinished(self, run: str) -> bool | None:
        return False if self.runs[run].state == "finished" else None

    def give_up(self, entry: QueueEntry, sentence: str) -> None:
        self._call()
        if self.runs[entry.run].state in ("queued", "running", "lost"):
            self.runs[entry.run].state = "failed"

    # time and chance

    def pass_by(self, seconds: float) -> None:
        """Drivers begin, work and end meanwhile."""
        self.now_s += seconds
        for run in self.runs.values():
            if run.alive and run.state == "queued" and run.begins_at_s <= self.now_s:
                run.life, run.state = run.life + 1, "running"
            elif run.alive and run.state == "running":
                run.done_s += seconds
                if run.asked:
                    run.alive, run.state = False, "stopped"
                elif run.done_s >= run.lasts_s:
                    run.alive, run.state = False, run.ends[min(run.life, len(run.ends) - 1)]
                    run.done_s = 0.0 if run.state == "lost" else run.done_s

    def reboot(self) -> None:
        self.boot = str(int(self.boot) + 1)
        self.now_s = 0.0
        for run in self.runs.values():
            run.alive = False

    def lose_or_find_hosts(self, chance: random.Random) -> None:
        """One of the hosts is not reached any more, and what runs there is lost; or it is reached again."""
        hosts = list(self.capacity_.hosts)
        at = chance.randrange(len(hosts))
        lost = "" if hosts[at].why_not else f"{hosts[at].name} is not reached"
        hosts[at] = msgspec.structs.replace(hosts[at], why_not=lost)
        self.capacity_ = msgspec.structs.replace(self.capacity_, hosts=tuple(hosts))
        for run in self.runs.values():
            if lost and run.alive and run.host == hosts[at].name:
                run.alive, run.state = False, "lost" if run.state == "running" else run.state

    def submit(self, name: str, program: Program, **asked: Any) -> None:
        place = 1 + max((one.place for one in self.rows.values()), default=0)
        program.after = asked.get("after", ())
        self.runs[name] = program
        self.rows[name] = QueueEntry(run=name, place=place, **asked)


LOOKS = 1000  # the longest run may be lost twenty times
CHANGED_LOOKS = 200  # from then on nobody holds, cancels or changes anything


def schedule(seed: int, *, killed_in: int | None = None) -> Lab:
    """Let a queue of random runs pass on a random machine; check at each look.

    killed_in: the call in which the runner is killed; else it is at random calls, again and again.
    """
    chance = random.Random(seed)
    lab = Lab(Capacity(tuple(range(chance.choice([2, 4, 8]))), 16, tuple(range(chance.choice([0, 2])))))
    if chance.random() < 0.5:
        hosts = [
            HostCapacity(name, tuple(range(chance.choice([1, 4]))), 8, folders=(".",)) for name in ("alpha", "beta")
        ]
        lab.capacity_ = msgspec.structs.replace(lab.capacity_, hosts=tuple(hosts))
    count = chance.randint(3, 12)
    for look in range(LOOKS):
        if len(lab.runs) < count and (chance.random() < 0.3 or not lab.rows):
            _submit_some(lab, chance)
        if look < CHANGED_LOOKS and chance.random() < 0.1:
            _change_some(lab, chance)
        if chance.random() < 0.02:
            lab.reboot()
        if lab.capacity_.hosts and chance.random() < 0.02:
            lab.lose_or_find_hosts(chance)
        if killed_in is not None:
            lab.killed_at = killed_in if lab.calls < killed_in else inf
        elif chance.random() < 0.3:
            lab.killed_at = lab.calls + chance.randint(1, lab.longest_look)
        began = lab.calls
        before = {run: lab.runs[run].alive for run in lab.runs}
        try:
            QueueRunner(lab, lab).look()
            lab.killed_at = inf
            _check_order(lab)
        except KilledError:
            pass
        lab.longest_look = max(lab.longest_look, lab.calls - began)
        _check_room(lab, before)
        lab.pass_by(chance.choice([1.0, 1.0, 5.0]))
        if len(lab.runs) == count and not lab.rows:
            break
        if look >= CHANGED_LOOKS:
            for run, entry in lab.rows.items():
                lab.rows[run] = msgspec.structs.replace(entry, held=False)
    assert not lab.rows, f"still in the queue: {sorted(lab.rows)}"
    _check_ends(lab)
    return lab


def _submit_some(lab: Lab, chance: random.Random) -> None:
    number, room = len(lab.runs), lab.capacity_
    demand = Demand(chance.randint(1, len(room.cores)), chance.choice([0, 4, 8]), chance.randint(0, len(room.gpus)))
    lasts_s = chance.choice([2.0, 5.0, 20.0])
    elastic = number % 3 == 1  # its workers come and go
    lab.submit(
        f"r{number}",
        Program(lasts_s, chance.choice([["finished"]] * 4 + [["lost", "finished"], ["failed"], ["lost"], ["stopped"]])),
        demand=demand,
        priority=chance.choice([0, 0, 0, 1, 5]),
        time_s=chance.choice([None, lasts_s + 2, 1.0]),
        movable=chance.random() < 0.5 and not elastic,
        losses=20 if room.hosts else 3,  # those that a machine loses count, too
        after=(f"r{chance.randrange(number)}",) if number and chance.random() < 0.2 else (),
        between=(demand.cores, len(room.cores)) if elastic else None,
    )


def _change_some(lab: Lab, chance: random.Random) -> None:
    if not lab.rows:
        return
    run = chance.choice(sorted(lab.rows))
    change = chance.choice([{"held": True}, {"held": False}, {"priority": chance.randint(0, 5)}, {"cancelled": True}])
    lab.rows[run] = msgspec.structs.replace(lab.rows[run], **change)
    lab.cancelled |= {run} if "cancelled" in change else set()


def _check_room(lab: Lab, before: dict[str, bool]) -> None:
    """Check that each part given to a live run exists, and is given once."""
    for name, machine in _machines(lab).items():
        alive = [run for run in lab.runs.values() if run.alive and run.host == name]
        for kind in ("cores", "gpus"):
            given = [number for run in alive for number in getattr(run, kind)]
            assert len(given) == len(set(given)), f"{kind} were given twice"
            assert set(given) <= set(getattr(machine, kind))
        assert sum(run.memory_bytes for run in alive) <= machine.memory_bytes
    assert all(lab.rows[run].movable for run, one in lab.runs.items() if one.alive and one.host)


def _machines(lab: Lab) -> dict[str, Capacity]:
    """Each by its name; none that is not reached."""
    there = {one.name: Capacity(one.cores, one.memory_bytes) for one in lab.capacity_.hosts if not one.why_not}
    return {"": lab.capacity_} | there


def _check_order(lab: Lab) -> None:
    """Nobody who could start waits, be it that only later ones or lower ones are in the way: these are stopping."""
    rows = lab.rows.values()
    open_ = {one.run for one in rows}
    able = [one for one in rows if one.state == "waiting" and not one.held and not open_.intersection(one.after)]
    able = [one for one in able if _possible(lab, one) and not one.cancelled]
    if not able:
        return
    first = min(able, key=lambda one: one.order)
    stopping = [one for one in rows if one.state == "stopping"]
    for name in _possible(lab, first):
        here = [one for one in rows if one.given and one.given.host == name]
        dear = [one for one in here if one.state == "running" and one.priority >= first.priority]
        dear = [one for one in dear if not (one.fills and one.order > first.order)]
        room = _machines(lab)[name].whole
        for one in dear:
            room -= one.demand
        assert not first.demand.within(room) or stopping, f"{first.run} waits for nothing, or for who should give way"
        for one in here:
            room -= one.demand if one not in dear else Demand(0)
        assert not first.demand.within(room), f"{first.run} has room, and waits"


def _possible(lab: Lab, entry: QueueEntry) -> list[str]:
    """The machines where it could run, if nobody else did."""
    machines = {name: one for name, one in _machines(lab).items() if entry.demand.within(one.whole)}
    return [name for name in machines if not name or entry.movable]


def _check_ends(lab: Lab) -> None:
    assert sorted(lab.left) == sorted(lab.runs), "each run left the queue once"
    for name, run in lab.runs.items():
        assert not run.alive, name
        if run.ends == ["finished"] and not run.after and name not in lab.cancelled:
            assert run.state == "finished", (name, run.state)
