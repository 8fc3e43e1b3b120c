"""Files that predictions are written to; a file's name is the output's suffix. Guide: docs/predicting.md"""

from volary.plugins import Room

ROOM = Room(__name__, "WRITER", protocol="volary.train.predicting.formats._base:PredictionWriter")
