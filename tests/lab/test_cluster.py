import sys
import time
from pathlib import Path

import pytest

from volary.errors import SettingError
from volary.lab import Lab, LabError
from volary.lab.jobs import wait_any
from volary.run.machine.cores import EACH, cores_here

pytestmark = pytest.mark.root


def shell(script):
    return ["sh", "-c", script]


def test_a_host_has_its_name_its_processes_and_its_network_to_itself(opened):
    lab = opened(hosts=2)
    assert lab.output(0, ["hostname"]) == "h0\n"
    assert lab.output(1, ["hostname"]) == "h1\n"
    assert lab.output(1, shell("ls /sys/class/net")) == "eth0\nlo\n"
    assert "10.91.0.1 h0" in lab.output(1, ["cat", "/etc/hosts"])
    other = lab.start(0, ["sleep", "60"])
    assert "sleep" not in lab.output(1, shell("cat /proc/[0-9]*/comm || :"))
    assert other.status is None


def test_two_processes_of_one_host_share_memory_and_two_hosts_cannot(opened):
    lab = opened(hosts=2)
    lab.output(0, shell("echo mine > /dev/shm/segment"))
    assert lab.output(0, ["cat", "/dev/shm/segment"]) == "mine\n"
    with pytest.raises(LabError, match=r"on host 1 ended with status 1: .*/dev/shm/segment"):
        lab.output(1, ["cat", "/dev/shm/segment"])
    assert not Path("/dev/shm/segment").exists()


def test_commands_start_in_the_current_folder_which_all_hosts_share(opened, tmp_path):
    lab = opened(hosts=2)
    lab.output(0, shell("echo hello > note"))
    assert lab.output(1, ["cat", "note"]) == (tmp_path / "note").read_text() == "hello\n"


def test_ranks_have_the_variables_that_torchrun_would_set(opened, tmp_path):
    lab = opened(hosts=2)
    names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR GLOO_SOCKET_IFNAME"
    told = " ".join(f"${name}" for name in [*names.split(), "MINE", EACH])
    ended = lab.run(shell(f"echo {told}"), procs=2, env={"MINE": "42"}, log_dir="logs")
    assert (ended.status, ended.rank, ended.statuses) == (0, None, [0] * 4)
    said = [Path(f"logs/rank-{rank}.log").read_text().split() for rank in range(4)]
    each = f"{len(cores_here()) / 4:g}"
    assert said == [[str(r), "4", str(r % 2), "2", str(r // 2), "10.91.0.1", "eth0", "42", each] for r in range(4)]


def test_the_first_failure_ends_all_and_names_the_rank(opened):
    lab = opened(hosts=3)
    ended = lab.run(shell("[ $RANK = 1 ] && exit 7; sleep 600"))
    assert (ended.status, ended.rank, str(ended)) == (7, 1, "rank 1 ended with status 7")


def test_a_rank_that_is_stopped_is_ended_with_the_others(opened):
    lab = opened(hosts=2)
    ended = lab.run(shell("[ $RANK = 0 ] || { kill -STOP $$; exit 9; }; exit 7"))
    assert (ended.status, ended.rank, ended.statuses) == (7, 0, [7, None])


def test_a_rank_that_goes_on_after_it_was_stopped_ends_as_any_other(opened):
    lab = opened(hosts=1)
    job = lab.start(0, shell("kill -STOP $$; exit 7"))
    lab.output(0, shell("until grep -q '(stopped)' /proc/[0-9]*/status; do sleep 0.05; done; kill -CONT -1"))
    assert job.wait(60) == 7


def test_a_rank_that_a_signal_ends_counts_128_more_than_the_signal(opened):
    assert opened(hosts=1).run(shell("kill -9 $$")).status == 128 + 9


def test_ranks_that_do_not_end_in_time_are_asked_then_killed(opened):
    lab = opened(hosts=2)
    script = "trap 'echo asked; exit 0' TERM; [ $RANK = 1 ] && trap '' TERM; sleep 60 & wait; sleep 60"
    ended = lab.run(shell(script), timeout_s=0.3, log_dir="logs")
    assert (ended.status, ended.rank, str(ended)) == (124, None, "the time was over")
    assert Path("logs/rank-0.log").read_text() == "asked\n"


def test_what_a_rank_left_running_is_cleared_away_on_its_host(opened):
    lab = opened(hosts=1)
    assert lab.run(shell("(true &) ; (true &) ; true")).status == 0
    until = time.monotonic() + 20
    while "Z" in (states := lab.output(0, shell("cat /proc/[0-9]*/stat 2>/dev/null | cut -d' ' -f3"))):
        assert time.monotonic() < until, states  # one that has just ended may be seen, too


def test_pinned_ranks_have_their_share_of_the_cores(opened):
    lab = opened(hosts=2)
    code = "import os; print(len(os.sched_getaffinity(0)))"
    for pin in (True, False):
        assert lab.run([sys.executable, "-c", code], pin=pin, log_dir=f"{pin}").status == 0
    assert int(Path("True/rank-0.log").read_text()) <= int(Path("False/rank-0.log").read_text())


def test_changes_happen_while_the_command_runs(opened):
    lab = opened(hosts=2)
    told = []
    carrier = "until [ $(cat /sys/class/net/eth0/carrier) = 0 ]; do sleep 0.05; done"
    ended = lab.run(shell(f"[ $RANK = 0 ] || {carrier}"), at=["200ms:cut:1"], timeout_s=120, say=told.append)
    assert (ended.status, told) == (0, ["0.2 s: link of host 1 cut"])


def test_a_lab_says_when_it_is_used_wrongly(opened):
    lab = opened(hosts=2)
    for call in (lab.cut, lab.restore, lab.counters, lambda host: lab.start(host, ["true"])):
        with pytest.raises(SettingError, match="there is no host 2; accepted: 0 to 1"):
            call(2)
    with pytest.raises(SettingError, match="procs is 0"):
        lab.run(["true"], procs=0)
    with pytest.raises(LabError, match="the lab is not open"):
        Lab(hosts=1).cut(0)
    with pytest.raises(LabError, match="open already"):
        lab.__enter__()


def test_a_lab_can_be_opened_again_and_two_labs_do_not_meet(allowed):
    lab = Lab(hosts=1)
    for _ in range(2):
        with lab, Lab(hosts=1) as another:
            lab.output(0, ["touch", "/dev/shm/seen"])
            assert another.output(0, ["ls", "/dev/shm"]) == ""


def test_a_wait_for_nobody_ends():
    wait_any([])  # the last rank may end between two looks at who still runs
