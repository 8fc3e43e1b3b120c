"""A solver of Caffe's as the settings of a session: its update rule, its rate over time, its data, its periods."""
