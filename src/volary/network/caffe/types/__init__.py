"""The translation of each of Caffe's layer types to a graph: the kind of layer, and where its blobs go."""
