"""Samples to batches: a source says what there is, a feed says who gets which of it and when. Guide: docs/data.md

`samples` has the protocol of what is read by index, `sources/` one file per format, `own` a user's data set, `feed` the
batches of one worker. Nothing of torch, numpy or Pillow is imported before a source is opened.
"""
