"""Spark as `make engines` installs it, for programs that tests start."""

from engine.conftest import spark

__all__ = ["spark"]
