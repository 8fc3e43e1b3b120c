"""Timeouts of the data path itself. The driver's watch finds lost and stuck workers long before."""

LAST_RESORT_S = 172_800.0  # two days: beyond any strategy.stuck_after_s, or a slow worker would break the exchange
