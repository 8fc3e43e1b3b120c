"""Knock `N` times at each of `host:port ...` with garbage; prints how many got through. Run by test_group."""

import contextlib
import resource
import select
import socket
import sys
import time

GARBAGE = b"GET / HTTP/1.1\r\n\r\n" + bytes(range(256)) * 4

if __name__ == "__main__":
    times, ends = int(sys.argv[1]), [end.rsplit(":", 1) for end in sys.argv[2:]]
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    plugs = []
    poll = select.poll()
    for _ in range(times):
        for host, port in ends:
            sock = socket.socket()
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                sock.connect((host, int(port)))
            poll.register(sock, select.POLLOUT)
            plugs.append(sock)
    through = {}
    stop = time.monotonic() + 1.5  # a second attempt of each connection falls into it
    while (left_s := stop - time.monotonic()) > 0 and len(through) < len(plugs):
        for descriptor, events in poll.poll(left_s * 1000):
            poll.unregister(descriptor)
            sock = next(p for p in plugs if p.fileno() == descriptor)
            if not events & (select.POLLERR | select.POLLHUP):
                through[descriptor] = sock
                with contextlib.suppress(OSError):
                    sock.send(GARBAGE)
    print(len(through))
    time.sleep(0.2)
    for sock in plugs:
        sock.close()
