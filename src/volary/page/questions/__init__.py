"""What the page asks of one run, and the answers, which the server and the report share."""
