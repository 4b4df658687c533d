"""A data set and a method that costar finds by the entry points of this package."""
