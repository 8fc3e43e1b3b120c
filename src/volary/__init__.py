"""Volary: distributed deep-learning training on PyTorch, every published way as settings of one session."""

__version__ = "0.1.0"
