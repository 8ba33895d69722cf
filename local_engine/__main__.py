"""`python -m local_engine`: fetch weights, serve them, measure them."""

import sys

from local_engine.cli import main

sys.exit(main())
