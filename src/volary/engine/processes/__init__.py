"""Processes on this machine: forked or started, adopted, watched, ended."""
