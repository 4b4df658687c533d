"""Methods without a network: the marginal structural model, ridge regression, and the last value."""
