#!/bin/sh
# Resolve pyproject.toml into the lock files, for every platform and Python 3.12 or newer, with hashes. Where the
# packages come from is a matter of each machine, so no address is written. More words go to uv (--upgrade).
set -eu
cd "$(dirname "$0")/../.."
uv=$(command -v uv || true)
if [ -z "$uv" ]; then
    uv=.venv/bin/uv
    [ -x "$uv" ] || .venv/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.9'
fi
compile() {
    "$uv" pip compile --quiet --universal --python-version 3.12 --generate-hashes --only-binary :all: \
        --no-header --no-annotate --no-emit-index-url --no-emit-find-links "$@"
}
compile "$@" pyproject.toml --output-file requirements.lock
# The tools of development may not move what runs in production.
compile "$@" pyproject.toml --extra dev --constraint requirements.lock --output-file requirements-dev.lock
compile "$@" tests/wire/node.in --output-file tests/wire/node.lock
echo "Locked: requirements.lock, requirements-dev.lock, tests/wire/node.lock"
