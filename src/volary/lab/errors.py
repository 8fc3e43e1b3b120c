"""Errors of a lab itself; those of its programs are their own."""

from volary.errors import VolaryError

TIME_IS_OVER = 124


class LabError(VolaryError):
    """The lab cannot be made or changed here; the message says what is missing and what would help. Exit code 1."""


class TimeIsOver(VolaryError):
    """A run in the lab was stopped because its time was over; it can be resumed."""

    exit_code = TIME_IS_OVER
