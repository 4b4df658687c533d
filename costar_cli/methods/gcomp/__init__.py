"""Step-by-step g-computation: one step of outcomes and covariates is learned, and plans are simulated."""
