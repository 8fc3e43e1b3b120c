"""Stores that fsspec reaches (s3://, hdfs://, https://): their files, and how often they are asked again."""
