"""The in-context model: features learned from simulated worlds, an exact Bayesian head, effects of single subjects."""
