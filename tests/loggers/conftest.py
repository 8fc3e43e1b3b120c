"""The command in this process, as in tests/cli."""

from cli.conftest import volary  # noqa: F401
