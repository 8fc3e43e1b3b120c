"""Gradients of a model in a user's own loop: those that passes of backward make, and those that buckets hold."""
