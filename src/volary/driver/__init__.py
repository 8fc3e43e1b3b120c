"""The driver: makes the run directory, has the workers started, watches them, and says how it ended.

start.py begins a run or a restart attempt; drive.py is the driver's loop; heartbeats.py takes in what workers report;
watching/ decides who is lost, and words the end; host.py drives a run whose workers somebody else starts.
"""
