"""Users of one machine, each with a queue: what one keeps for another, gives up, and learns of him."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import msgspec
import pytest

from jobs._lab import Lab, Program
from volary.errors import VolaryError
from volary.jobs.entry import Capacity, Claim, Demand
from volary.jobs.machines.notices import NoticeFolder
from volary.jobs.machines.shares import SLICE_S, Notice, RunningHere, beside, claims_of, notice_of
from volary.jobs.runner import QueueRunner

FOUR = Capacity((0, 1, 2, 3), 16)


def user(number: int, cores: tuple[int, ...] = (), wants: int = 0, since_s: float = 0.0) -> Notice:
    running = tuple(RunningHere(1, 0.0, (core,), 1) for core in cores)
    return Notice(number, 1, "", running, Demand(wants) if wants else None, since_s)


def test_who_has_fewer_cores_goes_first_then_who_waits_longer():
    few, many = user(1, (0,), wants=1), user(2, (1, 2), wants=1)
    assert claims_of(few, [many], 4) == ()
    assert claims_of(many, [few], 4) == (Claim(1, Demand(1)),)
    early, late = user(1, wants=4, since_s=5), user(2, wants=1, since_s=9)
    assert claims_of(early, [late], 4) == ()
    assert claims_of(late, [early], 4) == (Claim(1, Demand(4)),)


def test_only_who_has_more_than_his_share_gives_way_and_only_to_one_who_would_not_have_more():
    greedy = user(1, (0, 1, 2, 3))
    assert claims_of(greedy, [user(2, wants=2)], 4) == (Claim(2, Demand(2), gives_way=True),)
    assert claims_of(greedy, [user(2, wants=3)], 4) == (Claim(2, Demand(3)),)
    assert claims_of(user(1, (0, 1)), [user(2, (2,), wants=1)], 4) == (Claim(2, Demand(1)),)
    assert claims_of(greedy, [user(2, wants=2), user(3)], 4)[0].gives_way, "who neither has nor wants is not counted"


def test_what_others_have_is_used_and_never_the_same_cores():
    left = beside(FOUR, user(1, (0,)), [user(2, (1, 3))])
    assert (left.used_cores, left.used_bytes, left.usable.cores) == ((1, 3), 2, 2)


class OneOfSeveral(Lab):
    """A user's queue beside those of others, who are told what it has and wants."""

    def __init__(self, number: int, peers: list[OneOfSeveral]) -> None:
        super().__init__(FOUR)
        self.number, self.peers, self.since_s = number, peers, 0.0

    def notice(self) -> Notice:
        found = notice_of(list(self.rows.values()), FOUR, Notice(self.number, 1, "", since_s=self.since_s))
        self.since_s = self.now_s if found.wants is None else found.since_s
        return found

    def capacity(self, entries: object) -> Capacity:
        return beside(FOUR, self.notice(), [one.notice() for one in self.peers if one is not self])

    def cores(self) -> int:
        return sum(len(run.cores) for run in self.runs.values() if run.alive)


def several(count: int) -> list[OneOfSeveral]:
    users: list[OneOfSeveral] = []
    users += [OneOfSeveral(number, users) for number in range(count)]
    return users


def pass_by(users: list[OneOfSeveral], seconds: float) -> None:
    """Each runner looks, time passes, and no core has two runs."""
    for one in users:
        QueueRunner(one, one).look()
        alive = [core for other in users for run in other.runs.values() if run.alive for core in run.cores]
        assert len(alive) == len(set(alive))
    for one in users:
        one.pass_by(seconds)


def test_a_user_who_comes_later_has_half_of_the_machine_once_each_run_had_its_time():
    first, second = users = several(2)
    for number in range(8):
        first.submit(f"a{number}", Program(1e6, ["finished"]), demand=Demand(1))
    pass_by(users, 10)
    assert first.cores() == 4
    for number in range(8):
        second.submit(f"b{number}", Program(1e6, ["finished"]), demand=Demand(1))
    pass_by(users, 10)
    assert (first.cores(), second.cores()) == (4, 0), "each run has its time first"
    pass_by(users, SLICE_S)
    for _ in range(10):
        pass_by(users, 10)
    assert (first.cores(), second.cores()) == (2, 2)
    second.rows.clear()
    second.runs.clear()
    for _ in range(3):
        pass_by(users, 10)
    assert first.cores() == 4, "what nobody else wants is his again"


def test_a_run_larger_than_its_user_s_share_has_its_turn_when_those_that_run_end():
    first, second = users = several(2)
    for number in range(20):
        first.submit(f"a{number}", Program(100, ["finished"]), demand=Demand(1))
    pass_by(users, 50)
    second.submit("all", Program(100, ["finished"]), demand=Demand(4))
    for _ in range(8):
        pass_by(users, 50)
    assert second.runs["all"].state == "finished"
    assert any(run.state == "queued" for run in first.runs.values())


def test_in_random_queues_of_several_users_everybody_s_runs_end_and_no_core_is_given_twice():
    for seed in range(60):
        chance = random.Random(seed)
        users = several(chance.choice([2, 3]))
        for _ in range(300):
            one = chance.choice(users)
            if len(one.runs) < 6:
                program = Program(chance.choice([5.0, 100.0, 2000.0]), ["finished"])
                wanted = Demand(chance.choice([1, 1, 2, 4]), chance.choice([0, 4]))
                one.submit(f"{one.number}-{len(one.runs)}", program, demand=wanted, priority=chance.choice([0, 0, 1]))
            pass_by(users, chance.choice([5.0, 50.0, 300.0]))
        for _ in range(300):
            pass_by(users, 100.0)
        assert all(not one.rows for one in users), f"seed {seed}: {[sorted(one.rows) for one in users]}"


def test_a_notice_counts_for_the_owner_of_its_file_and_what_ran_before_the_machine_was_started_anew_does_not(tmp_path):
    folder = NoticeFolder(tmp_path / "shared")
    assert (tmp_path / "shared").stat().st_mode & 0o7777 == 0o1777
    me, pid = os.getuid(), os.getpid()
    notice = Notice(me, pid, "boot", (RunningHere(pid, 0.0, (0,), 1), RunningHere(0, 0.0, (1,), 1)), Demand(1))
    folder.say(notice)
    assert folder.mine(me) == notice
    assert folder.others(me, "boot") == []
    assert folder.others(me + 1, "another boot") == []
    (seen,) = folder.others(me + 1, "boot")
    assert seen == msgspec.structs.replace(notice, running=notice.running[:1]), "a driver that has ended has nothing"
    forged = tmp_path / "shared" / f"{me + 7}.json"
    forged.write_bytes(msgspec.json.encode(msgspec.structs.replace(notice, user=me + 7)))
    (tmp_path / "shared" / "99.json").symlink_to(forged)
    (tmp_path / "shared" / "torn.json").write_text("{")
    assert len(folder.others(me + 1, "boot")) == 1


def test_a_folder_where_others_could_replace_a_notice_is_refused(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(VolaryError, match=r"share_folder: .* is no folder where nobody can replace a file of others"):
        NoticeFolder(tmp_path)
    with pytest.raises(VolaryError, match=r"share_folder: .*No such file or directory"):
        NoticeFolder(tmp_path / "no" / "such")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be two users")
def test_another_user_s_notice_counts_while_his_runner_and_his_drivers_are_there():
    path = Path("/tmp") / f"volary-shared-{os.getpid()}"
    folder = NoticeFolder(path)
    try:
        with subprocess.Popen(["sleep", "60"], user=65534) as his:
            notice = Notice(65534, his.pid, "boot", (RunningHere(his.pid, 0.0, (0, 1), 1),), Demand(2))
            file = path / "65534.json"
            file.write_bytes(msgspec.json.encode(notice))
            assert folder.others(0, "boot") == [], "not his file"
            os.chown(file, 65534, 65534)
            assert folder.others(0, "boot") == [notice]
            his.kill()
        assert folder.others(0, "boot") == [msgspec.structs.replace(notice, running=(), wants=None)]
    finally:
        for left in path.iterdir():
            left.unlink()
        path.rmdir()
