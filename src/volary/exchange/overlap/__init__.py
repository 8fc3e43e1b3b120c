"""What runs beside compute: the thread that communicates, the one that updates, and their order."""
