"""Where data come from: one module or folder per data set, each making a `Dataset` that knows its truth."""
