"""The worker: the loop, schedules, evaluation, checkpoints, faults. Guide: docs/training.md

loop.py is the training loop; assemble.py makes what it trains with from a session; worker.py is the process around it;
strategy.py puts the four axes together.
"""
