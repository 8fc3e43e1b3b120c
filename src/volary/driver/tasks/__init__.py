"""Tasks, which runs carry out: checked before a run starts, laid into its directory, queued."""
