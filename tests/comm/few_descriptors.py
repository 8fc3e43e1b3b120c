"""A process with few descriptors that serves until its input ends, then prints what it saw. Run by test_exhaustion."""

import json
import resource
import sys
import time

from conftest import KEY, Echo
from volary.comm.control.server import KeyedServer, Limits

if __name__ == "__main__":
    descriptors, strangers = int(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    with KeyedServer(KEY, {"echo": Echo()}, limits=Limits(strangers=strangers, handshake_s=60)) as server:
        print(json.dumps(server.address), flush=True)
        started = time.monotonic()
        sys.stdin.read()
        wall_s = time.monotonic() - started
        print(json.dumps({"refused": server.refusals.total(), "busy": time.process_time() / wall_s}), flush=True)
