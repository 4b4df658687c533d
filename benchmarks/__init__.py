"""Benchmarks. Threads that wait sleep, as in the `costar` command, which must be said before torch is loaded."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
