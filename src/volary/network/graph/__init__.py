"""A network as named layers and named edges: plain data, its wiring and shapes, and the module that is made of it."""
