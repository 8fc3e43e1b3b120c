"""Parts of engines that go through a launcher or a queue: its processes, its jobs, its commands."""
