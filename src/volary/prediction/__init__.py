"""Predicting with a run: here, with workers of an engine, or over HTTP for trying. Guide: docs/predicting.md"""
