"""Cookies of the admin: over HTTPS only, unless somebody says otherwise."""

import os
import subprocess
import sys

import pytest
from django.conf import settings

SHOW = "from config import settings; print(settings.SESSION_COOKIE_SECURE, settings.CSRF_COOKIE_SECURE)"


@pytest.mark.parametrize(
    ("environment", "secure"),
    [
        ({"TENURE_SECRET_KEY": "long and random", "TENURE_DEBUG": "0"}, True),
        ({"TENURE_SECRET_KEY": "long and random", "TENURE_DEBUG": "0", "TENURE_SECURE_COOKIES": "0"}, False),
        ({"TENURE_DEBUG": "1"}, False),
    ],
)
def test_cookies_need_https_except_in_development(environment: dict[str, str], secure: bool) -> None:
    values = os.environ | {"DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none"} | environment
    done = subprocess.run(
        [sys.executable, "-c", SHOW],
        cwd=settings.BASE_DIR,
        env=values,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(secure)] * 2
