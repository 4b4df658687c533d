"""The pictures of a data report."""
