"""Values that Caffe has trained: weights of layers, mean images, and what a solver remembers."""
