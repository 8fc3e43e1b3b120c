"""Metrics, one file each, measured beside a loss; its `metric` names the one that decides. Guide: docs/networks.md"""

from volary.plugins import Room

ROOM = Room(__name__, "METRIC", protocol="volary.network.metrics._base:Metric")
