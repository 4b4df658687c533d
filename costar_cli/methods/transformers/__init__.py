"""The transformer baselines: CT, CT(ERM), EDCT."""
