"""What each of Caffe's layer types is in a graph: the kind of layer, and where its blobs go."""
