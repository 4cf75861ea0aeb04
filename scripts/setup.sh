#!/usr/bin/env bash
# Makes .venv with the pinned dependencies and the project itself, editable. Does nothing when all is in place.
#
#   scripts/setup.sh            needs only python3.11 or newer
#   PYTHON=python3.12 scripts/setup.sh
set -euo pipefail
cd "$(dirname "$0")/.."

readonly venv=.venv
readonly stamp=$venv/installed.stamp # what the venv was made from, word for word
readonly offered=(python3.11 python3 python3.12 python3.13 python3.14)

say() { printf 'set-up: %s\n' "$*"; }
fail() {
    printf 'set-up: %s\n' "$*" >&2
    exit 1
}

# Runs a command as root: plainly, or through sudo where that asks for no password.
as_root() {
    if [[ $(id -u) == 0 ]]; then "$@"; else sudo -n "$@"; fi
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-"${offered[@]}"}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    fail "found no Python 3.11 or newer (${PYTHON:-${offered[*]}}); install python3.11, or give PYTHON=/path/to/python"
}

install_venv() { as_root apt-get install -y -q -o DPkg::Lock::Timeout=120 python3-venv; }

# Debian ships venv without ensurepip until python3-venv is there.
make_venv() {
    local python
    python=$(find_python)
    "$python" -m venv "$venv" >/dev/null 2>&1 && return
    say "$python cannot make a virtual environment; installing python3-venv"
    { install_venv || { as_root apt-get update -q && install_venv; }; } >/dev/null 2>&1 ||
        fail "could not install python3-venv; as root: apt-get install python3-venv, then try again"
    "$python" -m venv --clear "$venv" || fail "$python -m venv $venv fails even with python3-venv; the lines above say why"
}

# The lock's own entry of one package, hashes included: one place for every pin.
locked() { awk -v start="^$1==" '$0 ~ start {on = 1} on {print} on && !/\\$/ {exit}' requirements.lock; }

install_fast() {
    "$venv/bin/python" -m pip install -qq --require-hashes -r <(locked uv) &&
        VIRTUAL_ENV=$PWD/$venv "$venv/bin/uv" pip sync -q --require-hashes requirements.lock
}

install_plain() {
    say "uv did not manage; trying plain pip"
    "$venv/bin/python" -m pip install -qq --require-hashes -r requirements.lock
}

# Two targets at once take turns; the second finds everything done.
mkdir -p "$venv"
if command -v flock >/dev/null; then
    exec 9>"$venv/setup.lock"
    flock 9
fi

if cat pyproject.toml requirements.lock | cmp -s - "$stamp" && "$venv/bin/python" -c '' 2>/dev/null; then
    exit 0
fi

started=$SECONDS
"$venv/bin/python" -m pip --version >/dev/null 2>&1 || make_venv
say "installing the pinned dependencies into $venv"
install_fast || install_plain || fail "could not install requirements.lock; the lines above say why"
"$venv/bin/python" -m pip install -qq --no-deps --no-build-isolation -e . ||
    fail "could not install healthsvc itself; the lines above say why"
cat pyproject.toml requirements.lock >"$stamp"
say "ready after $((SECONDS - started)) s"
