"""Channels between two processes, of which transports are made: accepting, introductions, streams, lent memory."""
