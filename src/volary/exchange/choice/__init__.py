"""Chooses the codec of each layer's gradient, by the cost that is expected of each."""
