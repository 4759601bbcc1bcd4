"""Find the Chromium that the browser tests drive, or bring one along where that is one command.

Playwright comes from the lock file, without a browser: the browser is the machine's own. `TENURE_TEST_CHROMIUM`
names it, else it is looked for on PATH. Where there is none, root on a Debian installs the distribution's package,
once, as a container or CI needs it; anybody else is told what to do, and the tests are skipped with that
sentence. With `CI=true` a missing browser is an error: a run that nobody watches must not pass by skipping.

    python tests/browser/chromium.py     install if needed, say where it is

Standard library only: CI runs this before there is anything else.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSTALL_LIMIT = 300  # seconds for one call of the package manager
PACKAGES = ("chromium", "fonts-liberation")
ATTEMPTS = 3  # mirrors are away for a moment now and then
ADVICE = "install one (Debian: apt-get install chromium), or say with TENURE_TEST_CHROMIUM=/path/to/it which one to use"


class NoBrowser(RuntimeError):
    """There is no Chromium for the browser tests, and none can be installed here."""


def find() -> Path | None:
    """The browser to use, if there is one; one that is named must be there."""
    named = os.environ.get("TENURE_TEST_CHROMIUM")
    if named:
        found = shutil.which(named)
        if found is None:
            raise NoBrowser(f"TENURE_TEST_CHROMIUM names {named}, which is no program")
        return Path(found)
    return next((Path(found) for name in NAMES if (found := shutil.which(name))), None)


def can_install() -> bool:
    """Whether this is root on a Debian or one of its children."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def ensure() -> Path:
    """The browser, installed first where that is possible and needed; raises NoBrowser."""
    found = find()
    if found is not None:
        return found
    if not can_install():
        raise NoBrowser(f"no Chromium on this machine: {ADVICE}")
    # Several test runs at once install it once.
    with (Path(tempfile.gettempdir()) / f"tenure-chromium.{os.geteuid()}.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        found = find()
        if found is None:
            _install()
            found = find()
    if found is None:
        raise NoBrowser(f"the package chromium was installed, but there is no program of this name: {ADVICE}")
    return found


def _install() -> None:
    for attempt in range(1, ATTEMPTS + 1):
        problem = _apt("update", "-qq") or _apt("install", "-y", "-qq", "--no-install-recommends", *PACKAGES)
        if problem is None:
            return
        if attempt < ATTEMPTS:
            time.sleep(2 * attempt)
    raise NoBrowser(f"installing Chromium failed: {problem}\n{ADVICE}")


def _apt(*words: str) -> str | None:
    """None, or what went wrong."""
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            ["apt-get", *words], env=env, capture_output=True, text=True, timeout=INSTALL_LIMIT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else (done.stdout + done.stderr)[-2000:]


def main() -> int:
    try:
        found = ensure()
    except NoBrowser as error:
        sys.stderr.write(f"The browser tests have no Chromium: {error}\n")
        return 1
    sys.stdout.write(f"chromium: {found}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
