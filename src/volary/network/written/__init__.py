"""Networks written as a list of layers, blocks and repeats; what the list becomes is a graph of named layers."""
