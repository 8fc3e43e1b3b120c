"""Ways to sum a tensor over all ranks. One file per route. Guide: docs/exchange.md"""

from volary.plugins import Room

ROOM = Room(__name__, "ROUTE", protocol="volary.comm.routes._base:RoutePlugin")
