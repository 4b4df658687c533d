"""Where data come from: a folder per data set, simulated or read, and one for tables; each makes a `Dataset`."""
