"""Arrays that are cut over workers, and layers that are written on them: communication is within.

After the distributed arrays of Coates, Huval, Wang, Wu, Ng & Catanzaro, "Deep learning with COTS HPC systems",
ICML 2013.
"""

from volary.network.arrays.distributed_array import DistributedArray
from volary.network.arrays.layers import Dense, LocallyConnected

__all__ = ["Dense", "DistributedArray", "LocallyConnected"]
