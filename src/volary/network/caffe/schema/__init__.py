"""Which fields Caffe's messages have: names, numbers, types and defaults."""
