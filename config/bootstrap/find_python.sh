#!/bin/sh
# Print the path of a Python that can run Tenure: one that runs, reports 3.12 or newer and can make virtual
# environments. Looked for, in this order: $PYTHON if set, names on PATH (every match: the first may be a shim
# that fails), pyenv's versions, uv. Fails with a message that says what to do.
set -u

probe='
import sys
if sys.version_info < (3, 12): sys.exit(1)
import ensurepip, ssl, venv
print(getattr(sys, "_base_executable", None) or sys.executable)
'
seen_without_venv=

try() {
    [ -f "$1" ] && [ -x "$1" ] || return 1
    if found=$("$1" -I -c "$probe" 2>/dev/null </dev/null) && [ -x "$found" ]; then
        printf '%s\n' "$found"
        exit 0
    fi
    if "$1" -I -c 'import sys; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1 </dev/null; then
        seen_without_venv=$1
    fi
    return 1
}

if [ -n "${PYTHON:-}" ]; then
    wanted=$(command -v "$PYTHON" 2>/dev/null) && try "$wanted"
    echo "PYTHON=$PYTHON is not a Python 3.12 or newer that runs and has the modules ssl, venv and ensurepip." >&2
    exit 1
fi

path=${PATH:-/usr/local/bin:/usr/bin:/bin}
for name in python3.14 python3.13 python3.12 python3 python; do
    old_ifs=$IFS
    IFS=:
    set -f
    for folder in $path; do
        try "${folder:-.}/$name"
    done
    set +f
    IFS=$old_ifs
done

# HOME may be empty, then the user database knows better.
home=${HOME:-}
if [ -z "$home" ]; then
    home=$( (getent passwd "$(id -u)" 2>/dev/null || grep "^[^:]*:[^:]*:$(id -u):" /etc/passwd) | cut -d: -f6)
fi

pyenv_roots() {
    printf '%s\n' "${PYENV_ROOT:-}" "${home:+$home/.pyenv}"
    # A shim's folder on PATH is ROOT/shims.
    printf '%s\n' "$path" | tr ':' '\n' | sed -n 's,/shims/*$,,p'
    pyenv root 2>/dev/null </dev/null
    printf '%s\n' /usr/local/pyenv /opt/pyenv
}

# Newest first. Names with letters are development or free-threaded builds, for which packages have no wheels.
candidates=$(
    pyenv_roots | while IFS= read -r root; do
        [ -n "$root" ] && [ -d "$root/versions" ] || continue
        for version in "$root"/versions/[0-9]*; do
            case ${version##*/} in *[!0-9.]*) continue ;; esac
            printf '%s\t%s\n' "${version##*/}" "$version/bin/python3"
        done
    done | sort -t. -k1,1nr -k2,2nr -k3,3nr | cut -f2
)
old_ifs=$IFS
IFS='
'
set -f
for python in $candidates; do
    try "$python"
done
set +f
IFS=$old_ifs

for uv in "$(command -v uv 2>/dev/null)" "$home/.local/bin/uv" "$home/.cargo/bin/uv"; do
    if [ -n "$uv" ] && [ -x "$uv" ]; then
        python=$("$uv" python find '>=3.12' 2>/dev/null </dev/null) && try "$python"
    fi
done

{
    echo "Tenure needs Python 3.12 or newer, and none was found on PATH, under pyenv or through uv."
    if [ -n "$seen_without_venv" ]; then
        echo "$seen_without_venv is new enough but can't make virtual environments:"
        echo "install its venv package (Debian and Ubuntu: apt install python3-venv), then run make again."
    else
        echo "Install one, for example with one of:"
        echo "    apt install python3.13 python3.13-venv      brew install python@3.13"
        echo "    pyenv install 3.13                          uv python install 3.13"
        echo "then run make again. Or name one: make setup PYTHON=/path/to/python3.13"
    fi
} >&2
exit 1
