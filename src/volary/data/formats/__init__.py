"""File formats that several sources read: tars, gzip, IDX, labels, byte pair encoding."""
