"""Mixed-effects growth model: growth per step, with effects of treatment that differ between subjects."""
