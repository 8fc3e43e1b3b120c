"""The emulated network: namespaces, links between them, their rates, and which hosts are on which switches."""
