"""A trained network for programs without Volary, and whether it computes the same. Guide: docs/predicting.md

traced.py has torch's graph of it; pt2.py and onnx.py write that, read it again and compare.
"""
