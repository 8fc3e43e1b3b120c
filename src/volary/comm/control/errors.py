"""Errors between the processes of a run. One sentence each.

VolaryError
├── KeyRefused      one side does not have the run's key; trying again does not help
├── OtherAttempt    the server is of another restart attempt of the run: this process was left behind by a restart
├── ConnectionLost  the other side went away, or did not answer in its time
│   └── NobodyThere nothing listens where it should
├── BadFrame        bytes that are no frame, or a frame above its limit
└── BadMessage      a frame whose content the service does not understand
"""

from volary.errors import VolaryError


class KeyRefused(VolaryError):
    """One of the two sides could not prove that it has the run's key."""


class OtherAttempt(VolaryError):
    """The server belongs to another restart attempt of the run than the one this process was started for."""


class ConnectionLost(VolaryError):
    """The other side closed, broke or left unanswered a connection; the message names it."""

    exit_code = 4


class NobodyThere(ConnectionLost):
    """The host answers, and nothing listens there: whoever did has ended."""


class BadFrame(VolaryError):
    """The bytes that arrived are not a frame, or announce more bytes than are accepted."""


class BadMessage(VolaryError):
    """A service cannot understand a message; the server drops the peer that sent it."""
