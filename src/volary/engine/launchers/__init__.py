"""What engines through a launcher or a queue share: its processes, its jobs, its commands."""
