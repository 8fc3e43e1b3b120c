"""What sources share: files and folders that are looked at, tars, gzip, IDX, labels, byte pair encoding."""
