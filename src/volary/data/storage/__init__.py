"""Files on this machine, or in a store that fsspec reads (s3://, hdfs://, https://, memory://)."""
