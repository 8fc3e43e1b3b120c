"""Where the bytes of samples are: files, members of tars, shards. Each kind reads one record by its index."""
