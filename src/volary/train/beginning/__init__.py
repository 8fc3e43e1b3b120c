"""Makes the first checkpoint of a run: weights of a file, or a snapshot of Caffe's."""
