"""The finder takes a Python only if it runs and is new enough, wherever it is; else it says what to do."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent.parent / "config" / "bootstrap" / "find_python.sh"
# The interpreter below the virtual environment that the tests run in.
REAL = str(getattr(sys, "_base_executable", sys.executable))
TOOLS = ("sh", "cut", "sort", "sed", "tr", "grep", "getent", "id", "env")


class Machine:
    """A machine with nothing but the tools of a shell script, and the Pythons that a test puts there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "bin"
        self.home = root / "home"
        self.environment = {"PATH": str(self.bin), "HOME": str(self.home)}
        self.bin.mkdir()
        self.home.mkdir()
        for tool in TOOLS:
            for folder in ("/bin", "/usr/bin"):
                if (Path(folder) / tool).exists():
                    (self.bin / tool).unlink(missing_ok=True)
                    (self.bin / tool).symlink_to(Path(folder) / tool)

    def program(self, path: Path, script: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def good(self, path: Path) -> str:
        """Answers the probe as a Python 3.12 or newer would, naming itself as the interpreter."""
        self.program(path, 'echo "$0"')
        return str(path)

    def shim_that_fails(self, path: Path) -> None:
        self.program(path, 'echo "pyenv: $0: command not found" >&2; exit 127')

    def too_old(self, path: Path) -> None:
        """Runs every program as Python 3.11 would: the probe's version check fails."""
        self.program(path, "exit 1")

    def find(self, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", str(SCRIPT)],
            env=self.environment | environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def found(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_python_on_path_is_found(machine: Machine) -> None:
    expected = machine.good(machine.bin / "python3")
    assert found(machine.find()) == expected


def test_a_shim_that_fails_and_an_old_python_hide_nothing_behind_them(
    machine: Machine, tmp_path: Path
) -> None:
    machine.shim_that_fails(machine.bin / "python3.13")
    machine.too_old(machine.bin / "python3")
    later = tmp_path / "later"
    expected = machine.good(later / "python3")
    assert found(machine.find(PATH=f"{machine.bin}:{later}")) == expected


def test_pyenv_under_home_is_found_when_path_has_none(machine: Machine) -> None:
    machine.shim_that_fails(machine.bin / "python3")
    machine.too_old(machine.home / ".pyenv/versions/3.11.7/bin/python3")
    expected = machine.good(machine.home / ".pyenv/versions/3.12.1/bin/python3")
    assert found(machine.find()) == expected


def test_pyenv_is_found_by_its_root_variable_with_home_empty(machine: Machine, tmp_path: Path) -> None:
    expected = machine.good(tmp_path / "envs/versions/3.99.0/bin/python3")
    assert found(machine.find(HOME="", PYENV_ROOT=str(tmp_path / "envs"))) == expected


def test_pyenv_is_found_by_the_folder_of_its_shims_with_home_empty(machine: Machine, tmp_path: Path) -> None:
    shims = tmp_path / "somewhere" / "shims"
    machine.shim_that_fails(shims / "python3")
    expected = machine.good(tmp_path / "somewhere/versions/3.99.0/bin/python3")
    assert found(machine.find(HOME="", PATH=f"{shims}:{machine.bin}")) == expected


def test_pyenv_is_found_by_asking_it(machine: Machine, tmp_path: Path) -> None:
    machine.program(machine.bin / "pyenv", f'[ "$1" = root ] && echo {tmp_path}/asked')
    expected = machine.good(tmp_path / "asked/versions/3.12.9/bin/python3")
    assert found(machine.find()) == expected


def test_free_threaded_and_development_builds_of_pyenv_are_left_out(machine: Machine) -> None:
    for version in ("3.13.0t", "3.15-dev"):
        machine.good(machine.home / ".pyenv" / "versions" / version / "bin/python3")
    assert machine.find().returncode == 1


def test_uv_is_the_last_to_be_asked(machine: Machine, tmp_path: Path) -> None:
    expected = machine.good(tmp_path / "managed" / "python3.13")
    machine.program(machine.home / ".local/bin/uv", f"echo {tmp_path}/managed/python3.13")
    assert found(machine.find()) == expected


def test_a_python_named_by_the_user_is_the_only_one_tried(machine: Machine, tmp_path: Path) -> None:
    machine.good(machine.bin / "python3")
    machine.too_old(tmp_path / "old")
    refused = machine.find(PYTHON=str(tmp_path / "old"))
    assert refused.returncode == 1
    assert "is not a Python 3.12 or newer" in refused.stderr
    expected = machine.good(tmp_path / "mine" / "python")
    assert found(machine.find(PYTHON=str(tmp_path / "mine" / "python"))) == expected


def test_nothing_found_says_what_to_do(machine: Machine) -> None:
    machine.too_old(machine.bin / "python3")
    nothing = machine.find()
    assert nothing.returncode == 1
    assert nothing.stdout == ""
    assert "needs Python 3.12 or newer" in nothing.stderr
    assert "pyenv install" in nothing.stderr


def test_a_new_python_without_its_venv_package_is_named(machine: Machine) -> None:
    machine.program(machine.bin / "python3", 'case "$*" in *ensurepip*) exit 1 ;; *) exit 0 ;; esac')
    nothing = machine.find()
    assert nothing.returncode == 1
    assert "apt install python3-venv" in nothing.stderr
    assert str(machine.bin / "python3") in nothing.stderr


def test_the_finder_needs_no_home_at_all(machine: Machine) -> None:
    expected = machine.good(machine.bin / "python3.12")
    del machine.environment["HOME"]
    assert found(machine.find()) == expected


def test_the_finders_answer_is_an_interpreter_and_not_a_shim(machine: Machine) -> None:
    machine.program(machine.bin / "python3", f'exec {sys.executable} "$@"')
    assert Path(found(machine.find())).samefile(REAL)
