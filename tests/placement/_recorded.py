"""Variables that real launchers set for their processes, as recorded, and the place that they name."""

from __future__ import annotations

from typing import Any, NamedTuple


class Recorded(NamedTuple):
    """launcher: the placement's name. by: the program and its version. place: what the variables say, in part."""

    launcher: str
    by: str
    variables: dict[str, str]
    place: dict[str, Any]


RECORDED = [
    Recorded(
        "local",
        "volary train, rank 2 of 3",
        {
            "VOLARY_RANK": "2",
            "VOLARY_WORLD_SIZE": "3",
            "VOLARY_LIFE": "1",
            "VOLARY_MEET": "127.0.0.1:40123",
        },
        {"rank": 2, "world_size": 3, "local_rank": 2, "node": 0, "attempt": 1},
    ),
    Recorded(
        "lab",
        "volary lab, rank 3 of 4, on the second of two hosts",
        {
            "RANK": "3",
            "WORLD_SIZE": "4",
            "LOCAL_RANK": "1",
            "GROUP_RANK": "1",
            "VOLARY_LAB_MEET": "/proc/self/fd/5",
            "VOLARY_LAB_ADDRESS": "10.0.0.2",
            "VOLARY_LAB_HOSTS": "h0 h0 h1 h1",
        },
        {
            "rank": 3,
            "world_size": 4,
            "local_rank": 1,
            "node": 1,
            "address": "10.0.0.2",
            "hosts": ("h0", "h0", "h1", "h1"),
        },
    ),
    Recorded(
        "torchrun",
        "torchrun --nnodes=1 --nproc-per-node=2 --max-restarts=6, torch 2.13, rank 1 after two restarts",
        {
            "LOCAL_RANK": "1",
            "RANK": "1",
            "GROUP_RANK": "0",
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": "41229",
            "TORCHELASTIC_RESTART_COUNT": "2",
            "TORCHELASTIC_RUN_ID": "none",
        },
        {"rank": 1, "world_size": 2, "local_rank": 1, "node": 0, "attempt": 2, "meet": "localhost:41229"},
    ),
    Recorded(
        "mpi",
        "mpirun -n 2, Open MPI 5.0.11, rank 1",
        {
            "OMPI_COMM_WORLD_RANK": "1",
            "OMPI_COMM_WORLD_SIZE": "2",
            "OMPI_COMM_WORLD_LOCAL_RANK": "1",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            "PMIX_NAMESPACE": "prterun-vm-9742@1",
        },
        {"rank": 1, "world_size": 2, "local_rank": 1, "node": 0, "beside": 2, "launch": "mpirun prterun-vm-9742@1"},
    ),
    Recorded(
        "mpi",
        "mpirun -n 2, MPICH 5.0.2 (Hydra), rank 1",
        {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"},
        {"rank": 1, "world_size": 2, "local_rank": 1, "node": 0, "beside": 2, "address": "127.0.0.1"},
    ),
    Recorded(
        "slurm",
        "srun -n 2 -N 2, Slurm 22.05.8, rank 1",
        {
            "SLURM_PROCID": "1",
            "SLURM_STEP_NUM_TASKS": "2",
            "SLURM_LOCALID": "0",
            "SLURM_NODEID": "1",
            "SLURM_STEP_NUM_NODES": "2",
            "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
            "SLURM_JOB_ID": "1",
            "SLURM_STEP_ID": "0",
            "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
        },
        {"rank": 1, "world_size": 2, "local_rank": 0, "node": 1, "beside": 1, "launch": "slurm 1.0"},
    ),
    Recorded(
        "hosts",
        "volary.machine_agent on the second of two machines, rank 3 of 4, in the run's second attempt",
        {
            "VOLARY_HOSTS_RANK": "3",
            "VOLARY_HOSTS_WORLD_SIZE": "4",
            "VOLARY_HOSTS_LOCAL_RANK": "1",
            "VOLARY_HOSTS_BESIDE": "2",
            "VOLARY_HOSTS_NODE": "1",
            "VOLARY_LIFE": "1",
        },
        {"rank": 3, "world_size": 4, "local_rank": 1, "node": 1, "attempt": 1, "beside": 2},
    ),
    Recorded(
        "ray",
        "engine: ray, Ray 2.60, rank 1 of 2 on one node",
        {
            "VOLARY_RAY_RANK": "1",
            "VOLARY_RAY_WORLD_SIZE": "2",
            "VOLARY_RAY_NODE": "0",
            "VOLARY_RAY_LOCAL_RANK": "1",
            "VOLARY_RAY_LOCAL_SIZE": "2",
        },
        {"rank": 1, "world_size": 2, "local_rank": 1, "node": 0, "beside": 2, "address": "127.0.0.1"},
    ),
    Recorded(
        "spark",
        "engine: spark, Spark 4.3, rank 1 of 2 on one node",
        {
            "VOLARY_SPARK_RANK": "1",
            "VOLARY_SPARK_WORLD_SIZE": "2",
            "VOLARY_SPARK_NODE": "0",
            "VOLARY_SPARK_LOCAL_RANK": "1",
            "VOLARY_SPARK_BESIDE": "2",
            "VOLARY_SPARK_OWN_DEVICES": "0",
        },
        {"rank": 1, "world_size": 2, "local_rank": 1, "node": 0, "beside": 2, "address": "127.0.0.1"},
    ),
]
