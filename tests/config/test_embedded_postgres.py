"""The embedded PostgreSQL outlives every process that uses it, and starts again after every way to die.

Each test has a cluster of its own in a temporary folder (below one that only its owner can enter, as pytest
makes them) and real processes.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from config import embedded_postgres
from config.embedded_postgres import EmbeddedPostgresError, ensure_running, status, stop

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parent.parent.parent

# A program that starts the cluster, says so with the server's pid, and waits until its input ends.
USER_PROGRAM = """
import sys
from pathlib import Path
from config import embedded_postgres
home = Path(sys.argv[1])
embedded_postgres.ensure_running(home, options=embedded_postgres.THROWAWAY_OPTIONS)
print(embedded_postgres.status(home).pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Where a cluster of the test may live; stopped at the end, whatever the test did to it."""
    home = tmp_path / "cluster"
    yield home
    stop(home)


@pytest.fixture
def start_user(home: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Start a process that uses the cluster; the first line it prints is the server's pid."""
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", USER_PROGRAM, str(home)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def started_pid(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def start(home: Path) -> str:
    return ensure_running(home, options=embedded_postgres.THROWAWAY_OPTIONS)


def query(url: str, statement: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)  # type: ignore[arg-type]
        row = cursor.fetchone() if cursor.description else None
    return row[0] if row else None


def wait_until(condition: Callable[[], bool], what: str, limit: float = 20.0) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit} s: {what}"
        time.sleep(0.01)


def test_a_new_cluster_speaks_only_over_its_own_socket_folder(home: Path) -> None:
    url = start(home)
    assert query(url, "SELECT current_database()") == "tenure"
    assert query(url, "SHOW listen_addresses") == ""
    assert query(url, "SHOW max_connections") == "300"
    assert (home / "socket").stat().st_mode & 0o777 == 0o700
    assert status(home).url == url


def test_a_cluster_is_safe_against_power_cuts_unless_asked_otherwise(home: Path) -> None:
    url = ensure_running(home)
    assert query(url, "SHOW fsync") == "on"
    assert query(url, "SHOW full_page_writes") == "on"
    assert query(url, "SHOW synchronous_commit") == "on"


def test_the_server_survives_a_kill_of_the_process_that_started_it(
    home: Path, start_user: Callable[[], subprocess.Popen[str]]
) -> None:
    starter = start_user()
    pid = started_pid(starter)
    url = start(home)
    with psycopg.connect(url, autocommit=True) as connection:
        starter.kill()
        starter.wait()
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert status(home).pid == pid


def test_a_signal_to_the_starters_process_group_does_not_reach_the_server(home: Path) -> None:
    program = "import sys; from pathlib import Path; from config import embedded_postgres as e; "
    program += "e.ensure_running(Path(sys.argv[1])); print('up', flush=True); sys.stdin.read()"
    group = subprocess.Popen(
        [sys.executable, "-c", program, str(home)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert group.stdout is not None
    assert group.stdout.readline() == "up\n"
    os.killpg(group.pid, signal.SIGKILL)
    group.communicate()
    assert query(start(home), "SELECT 1") == 1


def test_processes_that_start_at_the_same_moment_get_the_same_server(
    home: Path, start_user: Callable[[], subprocess.Popen[str]]
) -> None:
    users = [start_user() for _ in range(4)]
    assert len({started_pid(user) for user in users}) == 1


def test_stop_if_unused_leaves_the_server_to_its_last_user(
    home: Path, start_user: Callable[[], subprocess.Popen[str]]
) -> None:
    user = start_user()
    started_pid(user)
    start(home)
    assert stop(home, only_if_unused=True) is False
    assert status(home).running
    user.kill()
    user.wait()
    assert stop(home, only_if_unused=True) is True
    assert not status(home).running


def test_stop_cuts_open_connections_and_a_second_stop_finds_nothing(home: Path) -> None:
    url = start(home)
    with psycopg.connect(url) as connection:
        assert stop(home) is True
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert stop(home) is False


def test_committed_rows_survive_a_kill_of_the_server_and_its_stale_pid_file(home: Path) -> None:
    url = start(home)
    query(url, "CREATE TABLE kept AS SELECT 42 AS answer")
    pid = status(home).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(pid), "the server is gone")
    assert (home / "data" / "postmaster.pid").exists()
    assert not status(home).running
    assert query(start(home), "SELECT answer FROM kept") == 42
    assert status(home).pid != pid


def test_a_pid_file_that_names_another_living_process_is_stale(home: Path) -> None:
    start(home)
    stop(home)
    lines = [str(os.getpid()), str(home / "data"), "1", "5432", str(home / "socket"), "", "0 0", "ready"]
    (home / "data" / "postmaster.pid").write_text("\n".join(lines))
    assert not status(home).running
    assert stop(home) is False
    assert query(start(home), "SELECT 1") == 1


def test_a_server_whose_socket_was_swept_away_is_started_again(home: Path) -> None:
    start(home)
    pid = status(home).pid
    for file in (home / "socket").iterdir():
        file.unlink()
    assert not status(home).running
    assert query(start(home), "SELECT 1") == 1
    assert status(home).pid != pid


def test_an_interrupted_creation_is_started_over(home: Path) -> None:
    (home / "data.new").mkdir(parents=True)
    (home / "data.new" / "PG_VERSION").write_text("18\n")
    assert query(start(home), "SELECT 1") == 1
    assert not (home / "data.new").exists()


def test_a_path_too_long_for_a_socket_gets_a_short_private_folder(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 25) / "cluster"
    try:
        url = start(home)
        assert query(url, "SELECT 1") == 1
        with contextlib.closing(psycopg.connect(url)) as connection:
            socket_dir = Path(connection.info.host)
        assert not socket_dir.is_relative_to(tmp_path)
        assert socket_dir.stat().st_mode & 0o777 == 0o700
    finally:
        stop(home)
    socket_dir.rmdir()


def test_a_path_with_spaces_and_quotes_works(tmp_path: Path) -> None:
    home = tmp_path / 'it\'s a, "folder" $HOME'
    try:
        assert query(start(home), "SELECT 1") == 1
    finally:
        stop(home)


def test_two_clusters_run_side_by_side(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    try:
        query(start(home), "CREATE TABLE here AS SELECT 1")
        assert query(start(other), "SELECT to_regclass('here')") is None
        stop(home)
        assert status(other).running
    finally:
        stop(other)


def test_the_servers_environment_is_not_the_callers(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGOPTIONS", "-c nonsense=1")
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("LC_ALL", "xx_YY")
    monkeypatch.delenv("HOME", raising=False)
    url = start(home)
    monkeypatch.delenv("PGOPTIONS")
    assert query(url, "SHOW lc_messages") == "C"


def test_data_of_another_major_version_is_left_alone_with_a_message(home: Path) -> None:
    start(home)
    stop(home)
    version = home / "data" / "PG_VERSION"
    ours = version.read_text()
    version.write_text("12\n")
    with pytest.raises(EmbeddedPostgresError, match="was made by PostgreSQL 12"):
        start(home)
    version.write_text(ours)
    assert query(start(home), "SELECT 1") == 1


def test_a_server_that_cannot_start_shows_its_log(home: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match="no_such_setting"):
        ensure_running(home, options={"no_such_setting": "1"})


@pytest.mark.skipif(os.geteuid() != 0, reason="what root needs can only be seen as root")
def test_root_runs_it_as_another_account_and_opens_no_folder_above(home: Path, tmp_path: Path) -> None:
    above = {folder: folder.stat().st_mode for folder in tmp_path.parents}
    closed = [folder for folder, mode in above.items() if not mode & 0o001]
    assert closed, "pytest's own folder should be closed to others, or this test shows nothing"
    start(home)
    pid = status(home).pid
    assert pid is not None
    assert psutil.Process(pid).uids().effective != 0
    assert {folder: folder.stat().st_mode for folder in tmp_path.parents} == above


def test_the_command_line_starts_tells_and_stops(home: Path) -> None:
    def say(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "config.embedded_postgres", *words, str(home)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert say("url").returncode == 1
    url = say("start").stdout.strip()
    assert query(url, "SELECT 1") == 1
    assert say("url").stdout.strip() == url
    assert say("status").stdout.startswith("running ")
    assert say("stop", "--if-unused").stdout == "stopped\n"
    assert say("status").stdout.startswith("stopped ")
    assert say("restart").returncode == 2


def test_the_url_of_a_running_server_needs_no_write_to_the_data(home: Path) -> None:
    start(home)
    stamp = (home / "data" / "postmaster.pid").stat().st_mtime_ns
    for _ in range(3):
        start(home)
    assert (home / "data" / "postmaster.pid").stat().st_mtime_ns == stamp
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(str(home / "socket" / ".s.PGSQL.5432"))
