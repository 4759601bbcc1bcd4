"""Refuse committed files that only make sense on the machine they were made on.

Lock files must name no address: where packages come from is a matter of each machine. No tracked file may
hold the path of this checkout or of somebody's home.
"""

import os
import pwd
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
ADDRESS_FREE = (".lock", "package-lock.json", ".npmrc", "pip.conf")
ADDRESSES = (b"://", b"index-url", b'"resolved"', b"registry=")


def tracked() -> list[Path]:
    """The files that git would commit, those not added yet included."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.check_output(command, cwd=ROOT).split(b"\0")
    return [path for name in names if name and (path := ROOT / os.fsdecode(name)).is_file()]


def machine_paths() -> list[bytes]:
    """Paths of this machine, long enough not to turn up by chance."""
    paths = {ROOT, Path(pwd.getpwuid(os.geteuid()).pw_dir)}
    return [os.fsencode(path) + b"/" for path in paths if len(path.parts) > 2]


def problems() -> list[str]:
    """One line for each file and finding."""
    found = []
    here = machine_paths()
    for path in tracked():
        content = path.read_bytes()
        unwanted = [*here, *(ADDRESSES if path.name.endswith(ADDRESS_FREE) else ())]
        found += [f"{path.relative_to(ROOT)}: holds {word.decode()}" for word in unwanted if word in content]
    return found


if __name__ == "__main__":
    lines = problems()
    sys.stderr.writelines(f"{line}\n" for line in lines)
    sys.exit(1 if lines else 0)
