"""An emulated cluster on one Linux machine: hosts, links of a chosen rate, failures to order. Guide: docs/lab.md

with Lab(hosts=4, rate="1gbit") as lab:
    assert lab.run([sys.executable, "train.py"], procs=2, timeout_s=60).status == 0
    lab.set_rate(2, "50mbit")
    lab.cut(3)
    lab.counters(0).sent_bytes
"""

from volary.lab.cluster import Lab
from volary.lab.errors import LabError

__all__ = ["Lab", "LabError"]
