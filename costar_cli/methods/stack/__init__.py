"""Stacking: convex combinations of other methods, by outcome and step."""
