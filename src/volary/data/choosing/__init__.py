"""Which samples are learnt from, and which are validation data: parts and folds of a source that comes as one."""
