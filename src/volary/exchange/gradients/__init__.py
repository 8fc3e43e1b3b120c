"""Gradients on their way out of backward: buckets, what is written in place, factors instead of gradients."""
