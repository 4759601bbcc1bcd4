#!/bin/sh
# setup.sh base|dev: bring .venv to the state of the lock files. Cheap when there is nothing to do.
set -eu
cd "$(dirname "$0")/../.."

python=.venv/bin/python
if ! "$python" -I -c 'import sys; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1; then
    python=$(sh config/bootstrap/find_python.sh)
fi
exec "$python" -I config/bootstrap/install.py "$@"
