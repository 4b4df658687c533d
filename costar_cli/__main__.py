"""`python -m costar_cli`: the same as `costar`, and torchrun's door."""

import sys

from costar_cli.app import main

if __name__ == "__main__":
    sys.exit(main())
