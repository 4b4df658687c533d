"""A linear system under time-varying confounding, whose effects are known in closed form."""
