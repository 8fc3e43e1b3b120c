"""Networks written for others: as PyTorch code, and as Caffe's own files."""
