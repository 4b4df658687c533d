"""Worlds whose outcomes under every plan are known: tumours, HIV, glucose, INR, ICU, retail, a linear system.

The package stands alone on numpy and scipy and imports nothing of costar: each world can be used without it. Costar's
data sets are made from these worlds (`costar_cli/data/`).

It is installed beside `costar_cli` under the top-level name `simulators`. Another package of this name in the same
environment clashes with it: whichever Python finds first is imported. `costar doctor` says when that is not costar's.
"""
