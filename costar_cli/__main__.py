"""`python -m costar_cli`: the same as `costar`."""

import sys

from costar_cli.app import main

if __name__ == "__main__":
    sys.exit(main())
