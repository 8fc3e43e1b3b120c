"""Sends to one worker, in a thread of its own: a slow reader keeps nobody else waiting."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from volary.comm.control.errors import ConnectionLost
from volary.server.protocol.header import Form, Header
from volary.server.protocol.wakeup import Wakeup

if TYPE_CHECKING:
    from volary.comm.channels.channel import Channel
    from volary.server.shards.differences import Differences
    from volary.server.shards.slice_store import Reading, SliceStore

JOIN_S = 5.0


class Outbox:
    """Answers first, then values, as they are when it is their turn.

    differences: None: values travel in full. failed: told of what is our own mistake, in its thread.
    """

    def __init__(
        self,
        channel: Channel,
        slice_store: SliceStore,
        differences: Differences | None,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._failed = failed
        self._channel, self._slice_store, self._differences = channel, slice_store, differences
        self._answers: deque[tuple[Header, str]] = deque()
        self._values: dict[tuple[int, int], tuple[Header, Reading | None]] = {}  # by slice and snapshot, in order
        self._lent: set[Reading] = set()
        self._lock, self._wakeup, self._closed = threading.Lock(), Wakeup(), False
        self._thread = threading.Thread(target=self._run, name="server-outbox", daemon=True)
        self._thread.start()

    def answer(self, header: Header, sentence: str) -> None:
        """Send a header, and the sentence behind it, at the next `stir`."""
        self._answers.append((header, sentence))

    def give(self, header: Header, kept: Reading | None) -> None:
        """Send values behind a header, at the next `stir`: those that are kept, or else the newest.

        It answers earlier ones, too.
        """
        with self._lock:
            _, before = self._values.pop((header.slice, header.snapshot), (header, None))
            if before is not None:
                before.close()
            self._values[header.slice, header.snapshot] = header, kept

    def stir(self) -> None:
        """Wake the thread that sends: there is something to be sent."""
        self._wakeup.ring()

    def close(self) -> None:
        """Send no more; the channel must have been closed."""
        self._closed = True
        self._wakeup.ring()
        self._thread.join(JOIN_S)
        for reading in [kept for _, kept in self._values.values() if kept is not None]:
            reading.close()
        for reading in list(self._lent):
            self._returned(reading)

    def _run(self) -> None:
        try:
            while self._awaited():
                if self._answers:
                    header, sentence = self._answers.popleft()
                    more = bool(self._answers or (self._values and self._differences is None))  # which take time
                    self._channel.send(header.pack(), memoryview(sentence.encode()) if sentence else None, more=more)
                else:
                    with self._lock:
                        header, kept = self._values.pop(next(iter(self._values)))
                    self._send_values(header, kept)
        except ConnectionLost:
            self._channel.close()  # whoever receives from it hears of it, and ends this
        except BaseException as error:
            self._failed(error)

    def _awaited(self) -> bool:
        """Whether there is something to be sent; False: nothing ever will."""
        while not self._closed:
            if self._answers or self._values:
                return True
            self._wakeup.wait()
        return False

    def _send_values(self, header: Header, kept: Reading | None) -> None:
        reading = kept or self._slice_store.read(header.slice)
        version = max(header.version, reading.version)  # an update of nothing changes only what the shard counts
        if self._differences is not None and kept is None:
            frame = self._differences.frame(header.slice, reading.tensor, anew=header.form is Form.EXACT)
            if frame is not None:
                reading.close()
                header = header._replace(form=Form.DIFFERENCE, version=version, length=len(frame.payload))
                self._channel.send(header.pack(), frame.payload, lambda: self._slice_store.pool.give(frame))
                return
        header = header._replace(form=Form.EXACT, version=version, length=len(reading.payload))
        self._lent.add(reading)
        self._channel.send(header.pack(), reading.payload, lambda: self._returned(reading))

    def _returned(self, reading: Reading) -> None:
        with self._lock:
            if reading in self._lent:
                self._lent.remove(reading)
                reading.close()
