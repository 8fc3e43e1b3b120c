"""Sources of samples: one file per format, its name is the setting's value. Guide: docs/data.md"""

from volary.plugins import Room

ROOM = Room(__name__, "SOURCE", protocol="volary.data.sources._base:Source")
