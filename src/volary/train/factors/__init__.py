"""Factors of the learning rate and of the weight decay: by the names of parameters, and by the layers they are in."""
