"""Questions of the page about one run, and their answers, which the server and the report share."""
