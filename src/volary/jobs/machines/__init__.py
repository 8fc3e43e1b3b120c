"""The machines of the queue: what is free on each, hosts that ssh reaches, and what runs beside the queue."""
