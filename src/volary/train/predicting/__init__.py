"""Predicting with a trained network, by one process or several. Guide: docs/predicting.md

predictor.py is the network with the run's preprocessing; rows.py goes through inputs; formats/ has the files of output.
"""
