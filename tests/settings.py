"""The settings of a test run: the project's own, on a PostgreSQL for tests.

pytest-django reads settings before any conftest.py, so the server has to be up by then; that is all that this
module adds. Processes that tests start use `config.settings` (see conftest.py).
"""

import atexit
import os
from pathlib import Path

from config import embedded_postgres

os.environ.setdefault("TENURE_DEBUG", "1")

TEST_CLUSTER = Path(__file__).resolve().parent.parent / ".tenure" / "test"

# Nobody misses a test database after a power cut, so this cluster, and no other, runs without fsync.
# A server crash (also kill -9) loses nothing without it.
if not os.environ.get("DATABASE_URL"):
    os.environ["DATABASE_URL"] = embedded_postgres.ensure_running(
        TEST_CLUSTER, options=embedded_postgres.THROWAWAY_OPTIONS
    )
    # Not left to pytest's hooks: they don't run when the settings below can't be loaded.
    atexit.register(embedded_postgres.stop, TEST_CLUSTER, only_if_unused=True)

from config.settings import *  # noqa: E402, F403
