"""Inputs without targets, to predict from: what sources make of a file or a folder. Guide: docs/predicting.md"""
