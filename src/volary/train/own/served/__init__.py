"""A loop of a user's own over parameter servers: its feed, its steps, its checkpoints, and how it joins the run."""
