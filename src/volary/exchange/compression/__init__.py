"""Encoded gradients: how frames are summed, and error feedback (residuals)."""
