"""Methods that look at a whole batch: the roster coordinates them, and vectors stay on the servers, slice by slice."""
