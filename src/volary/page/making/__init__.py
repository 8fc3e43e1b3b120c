"""From data to a run on the page: which places it may read, files that are dropped into it, what is in them."""
