"""Criteria that losses/ builds: classes that compare outputs with targets in torch. One file each."""
