"""Refutation: worlds in which the answer is known without a simulator, and whether refits find it there."""
