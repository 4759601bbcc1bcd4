"""Bring `.venv` to the state of a lock file, with pip and nothing else.

    install.py base     what runs Tenure (requirements.lock)
    install.py dev      also the tools of development (requirements-dev.lock) and the tests' mock provider

Run by setup.sh with any Python 3.12 or newer; standard library only. A stamp in `.venv`, written last, says
what is installed: the hash of the lock file, the Python and the folder (a moved environment has wrong paths
in it). So a second call costs a few milliseconds, and an interrupted one is done again. A kernel lock lets
two calls follow each other.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOCK_FILES = {"base": ROOT / "requirements.lock", "dev": ROOT / "requirements-dev.lock"}


class SetupError(RuntimeError):
    """Set-up failed; the message says at which step and shows the end of its output."""


def say(text: str) -> None:
    """Progress goes to stderr, so that `make run | …` stays clean."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def base_python() -> str:
    """The interpreter below this one's virtual environment, if it is in one."""
    return str(getattr(sys, "_base_executable", None) or sys.executable)


def key(level: str) -> str:
    """What the stamp of an up-to-date environment says."""
    locked = hashlib.sha256(LOCK_FILES[level].read_bytes()).hexdigest()
    return f"{locked} {sys.version.split()[0]} {ROOT}\n"


def stamp(level: str) -> Path:
    """The stamp of one level. The larger level's stamp also counts for the smaller one."""
    return VENV / f".installed-{level}"


def up_to_date(level: str) -> bool:
    """Whether the environment holds what this level locks. A broken one never gets here as itself."""
    if Path(sys.prefix).resolve() != VENV.resolve():
        return False  # setup.sh came with another Python because the environment's own does not run
    levels = ("dev",) if level == "dev" else ("base", "dev")
    return any(stamp(one).exists() and stamp(one).read_text() == key(one) for one in levels)


def run(command: list[str], what: str) -> None:
    """Run one step, showing what pip is at; raises SetupError with the end of the output."""
    last: deque[str] = deque(maxlen=40)
    collected = 0
    shown = time.monotonic()
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None  # noqa: S101
        for line in process.stdout:
            last.append(line)
            collected += line.startswith("Collecting ")
            if line.startswith("Installing collected"):
                say(f"    {collected} packages fetched; unpacking")
            elif line.startswith("Collecting ") and time.monotonic() - shown > 3:
                shown = time.monotonic()
                say(f"    {collected} packages so far")
    if process.returncode:
        raise SetupError(f"{what} failed with status {process.returncode}:\n{''.join(last)}")


def make_environment() -> None:
    """A new virtual environment, unless a sound one for this Python and folder is there."""
    home = VENV / ".made-in"
    made = f"{sys.version.split()[0]} {ROOT}\n"
    sound = Path(sys.prefix).resolve() == VENV.resolve() and home.exists() and home.read_text() == made
    if sound:
        return
    say(f"Making .venv with Python {sys.version.split()[0]} ({base_python()})")
    if VENV.is_symlink():
        VENV.unlink()
    elif VENV.exists():
        shutil.rmtree(VENV)
    run([base_python(), "-I", "-m", "venv", str(VENV)], "making .venv")
    home.write_text(made)


def install(level: str) -> None:
    """Install the lock file of a level, with hashes, wheels only: nothing to resolve, nothing to compile."""
    count = sum(1 for line in LOCK_FILES[level].read_text().splitlines() if line[:1].isalnum())
    say(f"Installing {count} locked packages ({LOCK_FILES[level].name}); the first time takes a minute")
    pip = [str(PYTHON), "-I", "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    exact = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--progress-bar", "off"]
    run([*pip, *exact, "-r", str(LOCK_FILES[level])], "pip install")
    # Not the other way round: a stamp of the smaller level would be wrong after this one changed versions.
    for one in LOCK_FILES:
        stamp(one).unlink(missing_ok=True)
    stamp(level).write_text(key(level))


def main(arguments: list[str]) -> int:
    """Set up one level; prints nothing when there is nothing to do."""
    if len(arguments) != 1 or arguments[0] not in LOCK_FILES:
        say("usage: setup.sh base|dev")
        return 2
    level = arguments[0]
    started = time.monotonic()
    try:
        if not up_to_date(level):
            (ROOT / ".tenure").mkdir(exist_ok=True)
            with (ROOT / ".tenure" / "setup.lock").open("w") as guard:
                fcntl.flock(guard, fcntl.LOCK_EX)
                if not up_to_date(level):
                    make_environment()
                    install(level)
                    say(f"Installed in {time.monotonic() - started:.0f} s")
        if level == "dev":
            mock = subprocess.run(
                [PYTHON, "tests/wire/install.py"], cwd=ROOT, stdout=subprocess.DEVNULL, check=False
            )
            return mock.returncode
    except SetupError as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("Interrupted; run it again and it goes on.")
        return 130
    return 0


if __name__ == "__main__":
    os.umask(0o022)  # the embedded PostgreSQL's account reads its programs from .venv
    sys.exit(main(sys.argv[1:]))
