"""Memory that the processes of one machine share."""
