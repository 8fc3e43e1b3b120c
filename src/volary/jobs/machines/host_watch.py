"""Asks the further machines of the queue what they have, beside its runner's work."""

from __future__ import annotations

import threading
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import msgspec

from volary.engine.hosts import machine_and_slots
from volary.errors import SettingError
from volary.jobs.entry import NO_LIMIT, HostCapacity
from volary.jobs.machines.hosts import DOUBTED, FILE, keep_hosts, known_hosts
from volary.jobs.settings import QueueSettings, queue_settings, settings_file
from volary.run.machine import clock

ASK_EACH_S = 30.0


class HostWatch:
    """Asks the machines that the user's settings name, never more than once at the same time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._settings, self._settings_as = QueueSettings(), object()
        self._asked: tuple[object, frozenset[str]] = object(), frozenset()
        self._asked_s = float("-inf")
        self._thread: threading.Thread | None = None

    def ask(self, folders: Collection[str]) -> str:
        """Begin to ask if it is time, one may be lost, or the settings or the folders are others; returns at once.

        Returns a sentence if the settings cannot be read: then there are no such machines.
        """
        problem = self._read_settings()
        asked = self._settings_as, frozenset(folders)
        doubted = any(host.why_not.endswith(DOUBTED) for host in known_hosts(self._folder))
        late = doubted or clock.running_s() - self._asked_s > ASK_EACH_S
        if (self._thread is not None and self._thread.is_alive()) or (asked == self._asked and not late):
            return problem
        if self._settings.hosts or (self._folder / FILE).exists():
            self._thread = threading.Thread(target=self._look, args=(self._settings, sorted(folders)), daemon=True)
            self._thread.start()
        self._asked, self._asked_s = asked, clock.running_s()
        return problem

    def _read_settings(self) -> str:
        file, now = settings_file(), None
        with suppress(OSError):
            now = file.stat().st_mtime_ns
        if now == self._settings_as:
            return ""
        self._settings_as = now
        try:
            self._settings = queue_settings()
        except SettingError as error:
            self._settings = QueueSettings()
            return str(error)
        return ""

    def _look(self, settings: QueueSettings, folders: list[str]) -> None:
        found = []
        for host, answer in zip(settings.hosts, settings.engine(*settings.hosts).machines(folders), strict=True):
            name, count = machine_and_slots(host)
            if isinstance(answer, str):
                found.append(HostCapacity(name, why_not=answer))
            else:
                cores, memory = tuple(answer.cores[:count]), answer.memory_bytes or NO_LIMIT
                has = HostCapacity(name, cores, memory, folders=tuple(answer.folders), gpus=tuple(answer.gpus))
                found.append(msgspec.structs.replace(has, used_gpus=tuple(answer.used_gpus)))
        with suppress(OSError):  # a disk that is full: asked again later
            keep_hosts(self._folder, tuple(found))
