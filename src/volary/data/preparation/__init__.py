"""`volary data`: packs a whole data set into shards, checks it, counts it."""
