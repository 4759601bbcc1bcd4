"""The acceptance tests run real workers with short intervals; so does the test process itself."""

import dataclasses
from typing import Any

import pytest

from tests.processes.workers import FAST


@pytest.fixture(autouse=True)
def fast(settings: Any) -> None:
    settings.TENURE = dataclasses.replace(settings.TENURE, **FAST)
