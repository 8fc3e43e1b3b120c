"""How long the data path itself waits for a peer. Who is lost or stuck the driver's watch finds long before."""

LAST_RESORT_S = 172_800.0  # two days: beyond any strategy.stuck_after_s, or a slow worker would break the exchange
