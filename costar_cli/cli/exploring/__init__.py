"""The page of `costar explore`: what it asks, and the server that answers."""
