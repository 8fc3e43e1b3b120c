"""Ray's side of `engine: ray`: actors that have a run's processes below them, and the job that a run is.

`train` makes an actor of the user's own a worker. Guide: docs/engine-ray.md
"""

from volary.actors.rank import train as train
