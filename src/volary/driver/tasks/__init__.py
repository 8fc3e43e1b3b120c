"""Tasks, which runs carry out, and checks of them before a run starts."""
