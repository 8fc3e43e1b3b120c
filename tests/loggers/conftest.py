"""The command in this process and in one of its own, as in tests/cli."""

from cli.conftest import fresh, volary  # noqa: F401
