"""COSTAR (Meng et al., arXiv 2311.00886): self-supervised encoder and non-autoregressive outcome predictor."""
