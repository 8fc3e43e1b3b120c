"""Run by test_needs.py: a lab, made by a user without rights."""

import os
import warnings

import psutil  # noqa: F401  # what is imported later could not be read any more

from volary.lab import Lab

warnings.simplefilter("error")
os.chdir("/")
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
with Lab(hosts=2, rate="100mbit") as lab:
    print(lab.output(1, ["sh", "-c", "echo $(hostname) uid $(id -u)"]), end="")
    print(
        "tbf" if "tbf" in lab.output(0, ["sh", "-c", "PATH=$PATH:/usr/sbin:/sbin tc qdisc show dev eth0"]) else "none"
    )
    assert lab.run(["sh", "-c", "exit $RANK"]).status == 1
    lab.cut(1)
    lab.restore(1)
    lab.set_rate(0, None)
    assert lab.counters(0).sent_bytes < 1000
