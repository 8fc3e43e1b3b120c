"""The cache of records: in memory that all workers of a machine share, and on its disk. Guide: docs/data.md"""
