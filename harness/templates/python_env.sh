#!/bin/sh
# python_env.sh MAKE KEY SPEC: finds the Python environment KEY in the agent's cache, or has MAKE
# (python_env.py) make it, and links it as `env` in the current folder: the job's, or that of one
# side of a comparison. An existing environment is found without starting Python.
set -eu
root=$(cd "$RGPU_JOB_FOLDER/../../.." && pwd)
env="$root/python/$2"
if [ ! -e "$env/.ready" ]; then
    if ! command -v python3 >/dev/null 2>&1; then
        echo "python_env: there is no python3 on PATH" >&2
        exit 3
    fi
    python3 "$1" "$env" "$3"
fi
# Its time of change says when the environment was last used: `rgpu cache`.
touch -c "$env/.ready"
ln -sfn "$env" env
