"""Spark's side of `engine: spark`: a barrier stage whose tasks start a run's processes. Guide: docs/engine-spark.md"""
