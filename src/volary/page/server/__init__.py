"""The server: its socket and token, who may ask it, and which path is answered by what."""
