"""What a run begins with, as its first checkpoint: weights of a file, or a snapshot of Caffe's."""
