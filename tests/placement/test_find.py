"""Who am I? Answered from the environment that a launcher gives, as recorded from real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from placement._recorded import RECORDED
from volary.errors import BadInput
from volary.placement import Place, find

SOURCE = Path(__file__).parents[2] / "src"
# torchrun --nnodes=1 --nproc-per-node=2 --max-restarts=6, torch 2.13, rank 1 after two restarts
TORCHRUN = {
    "LOCAL_RANK": "1",
    "RANK": "1",
    "GROUP_RANK": "0",
    "ROLE_RANK": "1",
    "ROLE_NAME": "default",
    "LOCAL_WORLD_SIZE": "2",
    "WORLD_SIZE": "2",
    "GROUP_WORLD_SIZE": "1",
    "ROLE_WORLD_SIZE": "2",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "41229",
    "TORCHELASTIC_RESTART_COUNT": "2",
    "TORCHELASTIC_MAX_RESTARTS": "6",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    "OMP_NUM_THREADS": "1",
}
LOCAL = {
    "VOLARY_RANK": "2",
    "VOLARY_WORLD_SIZE": "3",
    "VOLARY_LIFE": "1",
    "VOLARY_MEET": "127.0.0.1:40123",
    "VOLARY_RUN": "/runs/x",
    "VOLARY_JOB": "volary.train.worker.job:run_session",
    "VOLARY_DRIVER": "77",
    "VOLARY_CORES": "0",
    "OMP_NUM_THREADS": "1",
}


def test_volarys_own_engine_is_recognised():
    place = find(LOCAL)
    assert place == Place(
        launcher="local", rank=2, world_size=3, local_rank=2, node=0, attempt=1, meet="127.0.0.1:40123"
    )
    assert place.meet_at == ("127.0.0.1", 40123)


def test_torchrun_is_recognised_with_its_restarts():
    place = find(TORCHRUN)
    assert place == Place(
        launcher="torchrun",
        rank=1,
        world_size=2,
        local_rank=1,
        node=0,
        attempt=2,
        meet="localhost:41229",
        launch=place.launch,
        beside=2,
        restarts=True,
    )


def test_all_processes_of_a_torchrun_and_no_others_have_the_same_launch():
    """Processes that begin a session each, as torchrun starts them, one through a shell; and those of another."""
    code = "from volary.placement import find; print(find().launch)"
    agent = f"""
import shlex, subprocess, sys
worker = [sys.executable, "-c", {code!r}]
for command in (worker, worker, ["sh", "-c", "{{}}; :".format(shlex.join(worker))]):
    subprocess.run(command, start_new_session=True, check=True)
"""
    variables = os.environ | TORCHRUN | {"PYTHONPATH": str(SOURCE)}
    said = [
        subprocess.run([sys.executable, "-c", agent], env=variables, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    one, other = ({*lines.splitlines()} for lines in said)
    assert len(one) == len(other) == 1
    assert one != other


def test_process_that_nobody_launched_is_told_how_to_start_a_run():
    with pytest.raises(
        BadInput,
        match=r"no launcher started this process \(looked for hosts, lab, local, mpi, ray, slurm, spark, torchrun\); ",
    ):
        find({"PATH": "/bin", "RANK": "0", "WORLD_SIZE": "1"})


def test_two_launchers_at_once_are_refused_by_name():
    with pytest.raises(BadInput, match="started by local and by torchrun at once"):
        find(LOCAL | TORCHRUN)


@pytest.mark.parametrize("inner", [LOCAL, TORCHRUN])
def test_a_launcher_inside_of_an_allocation_of_slurm_gives_the_place(inner):
    (slurm,) = (one for one in RECORDED if one.launcher == "slurm")
    assert find(slurm.variables).launcher == "slurm"
    assert find(slurm.variables | inner) == find(inner)


@pytest.mark.parametrize(("tasks", "node", "beside"), [("2", 0, 2), ("2(x3),1", 2, 2), ("2(x3),1", 3, 1)])
def test_tasks_of_a_node_of_slurm_are_counted(tasks, node, beside):
    (slurm,) = (one for one in RECORDED if one.launcher == "slurm")
    where = {"SLURM_STEP_TASKS_PER_NODE": tasks, "SLURM_NODEID": str(node)}
    assert find(slurm.variables | where).beside == beside
    with pytest.raises(BadInput, match="its SLURM_STEP_TASKS_PER_NODE is"):
        find(slurm.variables | where | {"SLURM_NODEID": "4"})


@pytest.mark.parametrize("name", ["VOLARY_WORLD_SIZE", "VOLARY_LIFE", "VOLARY_MEET"])
def test_variable_that_is_missing_is_named(name):
    with pytest.raises(BadInput, match=f"volary started this process, but its variable {name} is missing"):
        find({key: value for key, value in LOCAL.items() if key != name})


@pytest.mark.parametrize(
    "name",
    ["RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"],
)
def test_variable_of_torchrun_that_is_missing_is_named(name):
    with pytest.raises(BadInput, match=f"torchrun started this process, but its variable {name} is missing"):
        find({key: value for key, value in TORCHRUN.items() if key != name})


@pytest.mark.parametrize("value", ["", "one", "-1", "1.5", "²"])
def test_number_that_is_none_is_named(value):
    with pytest.raises(BadInput, match=r"its RANK is .*; accepted: a whole number"):
        find(TORCHRUN | {"RANK": value})


def test_rank_beyond_the_world_is_refused():
    with pytest.raises(BadInput, match="torchrun gave this process rank 2 of 2; accepted: 0 to 1"):
        find(TORCHRUN | {"RANK": "2"})


def test_meeting_point_without_a_port_is_refused():
    with pytest.raises(BadInput, match="workers meet at 'here'; accepted: host:port"):
        find(LOCAL | {"VOLARY_MEET": "here"})


def test_processes_of_one_of_several_launchers_are_numbered_after_the_others():
    place = find(TORCHRUN | {"VOLARY_FIRST": "2", "VOLARY_WORLD_SIZE": "6"})
    assert (place.rank, place.local_rank, place.world_size) == (3, 1, 6)
