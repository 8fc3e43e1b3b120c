"""Caffe's files as messages: text (prototxt) and bytes (caffemodel, binaryproto, solverstate), read and written."""
