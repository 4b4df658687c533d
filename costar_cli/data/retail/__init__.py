"""Weekly sales under prices: an embedded world, or the files of M5."""
