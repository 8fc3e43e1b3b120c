"""What routes are made of: timetables of a sum, who carries them out, and memory that a node's ranks share."""
