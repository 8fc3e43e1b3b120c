"""Records of bytes: files, members of tars, shards. Each kind reads one record by its index."""
