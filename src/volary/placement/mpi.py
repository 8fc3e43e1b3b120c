"""mpirun: Open MPI's, and Hydra, which MPICH and Intel MPI have. They keep no store for their processes to meet at."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

from volary.errors import BadInput
from volary.placement._base import Place, text, whole
from volary.run.machine.addresses import address_for_others

_NAMED = "VOLARY_LAUNCH"


@dataclass(frozen=True, kw_only=True)
class MpiPlacement:
    """Reads what mpirun exports; the processes of one mpirun find their run by what this one is called."""

    allocates: ClassVar[bool] = False

    def find(self, environment: os._Environ[str] | dict[str, str]) -> Place | None:
        """The place, if an mpirun started this process. Raises BadInput if a variable is missing or wrong."""
        if "OMPI_COMM_WORLD_RANK" in environment:
            names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
            where = [whole(environment, f"OMPI_COMM_WORLD_{name}", "mpirun") for name in names]
            launch = environment.get(_NAMED) or text(environment, "PMIX_NAMESPACE", "mpirun")
        elif "PMI_RANK" in environment and "MPI_LOCALRANKID" in environment:
            where = [
                whole(environment, name, "mpirun")
                for name in ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
            ]
            assigned = "VOLARY_RUN" in environment  # a driver said which run: it has not to be found
            launch = environment.get(_NAMED) or ("" if assigned else _proxy(*where))
        else:
            return None
        rank, world_size, local_rank, beside = where
        alone = beside == world_size
        return Place(
            launcher="mpi",
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            node=0 if alone else rank // max(1, beside),
            attempt=0,
            address="127.0.0.1" if alone else address_for_others(),
            launch=f"mpirun {launch}" if launch else "",
            beside=beside,
        )


def _proxy(_rank: int, world_size: int, _local_rank: int, beside: int) -> str:
    """Hydra names no job: on one machine its processes have one proxy above them. Raises BadInput on several."""
    if beside < world_size:
        raise BadInput(
            f"mpirun started {beside} of its {world_size} processes here, and MPICH gives them no name in common: "
            f"set one, as in `mpirun -genv {_NAMED} $(date +%s)-$$ ...`"
        )
    import psutil

    for above in psutil.Process().parents():
        if above.name().startswith("hydra"):
            return f"{above.pid} {above.create_time()}"
    return str(os.getppid())


PLACEMENT = MpiPlacement
