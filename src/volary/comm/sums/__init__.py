"""Parts of routes: timetables of a sum, the code that carries them out, and memory that a node's ranks share."""
