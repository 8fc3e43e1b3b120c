"""Caffe's networks, weights and solvers (Jia et al. 2014, arXiv:1408.5093; BVLC/caffe). Guide: docs/caffe.md

reading/ makes messages of files, schema/ says which fields those have; nothing of it imports torch.
"""
