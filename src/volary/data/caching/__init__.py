"""What was read is kept: in memory that all workers of a machine share, and on its disk. Guide: docs/data.md"""
