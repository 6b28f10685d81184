# shellcheck shell=bash
# Shared by the scripts of this folder: finding a Python, the virtual environment of the checkout, steps.
# Sourced, not run. Kept to what bash 3.2 knows, since that is what some systems still ship.

set -euo pipefail

ROOT="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)"
cd -- "$ROOT"

# Set by a user's shell, these would bring other packages into the virtual environment.
unset PYTHONPATH PYTHONHOME
export PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf '%s\n' "$*"; }

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

need_git() {
    git --version >/dev/null 2>&1 \
        || die "git is not installed: the tests and the demo call it; install the package 'git' and run this again"
}

# real_python COMMAND [X.Y]: print the path of the interpreter behind COMMAND if it runs, is 3.11 or newer
# (or exactly X.Y) and can make virtual environments. That a name is on PATH is not enough: version
# managers put shims there that only complain.
real_python() {
    "$1" - "${2:-}" 2>/dev/null <<'PY'
import sys
import ensurepip, venv

if sys.version_info < (3, 11) or sys.argv[1] not in ("", "%d.%d" % sys.version_info[:2]):
    sys.exit(1)
print(sys.executable)
PY
}

# find_python_version X.Y: print the path of a Python X.Y, from PATH or from the version manager.
find_python_version() {
    local candidate versions
    real_python "python$1" "$1" && return
    versions="$(pyenv root 2>/dev/null)/versions"
    for candidate in "$versions/$1".*/bin/python; do
        real_python "$candidate" "$1" && return
    done
    return 1
}

# find_python: print the path of the Python to use: $PYTHON, else the newest by name, else python3.
find_python() {
    local name
    if [ -n "${PYTHON:-}" ]; then
        real_python "$PYTHON" \
            || die "PYTHON=$PYTHON does not run, is older than 3.11 or lacks venv; unset it or point it at another"
        return
    fi
    for name in python3.13 python3.12 python3.11 python3; do
        real_python "$name" && return
    done
    for name in 3.13 3.12 3.11; do
        find_python_version "$name" && return
    done
    die "no Python 3.11 or newer with the venv module was found; install one (on Debian: python3 python3-venv)" \
        "or name it: PYTHON=/path/to/python $0"
}

checksum() { cksum <"$1"; }

# ensure_venv DIR PYTHON EXTRA: make the virtual environment DIR of PYTHON with the package, editable, and
# its EXTRA. Nothing is installed while pyproject.toml, the Python and the place of the checkout are those
# of the last time, so that a second run is quick and needs no network. `dev` contains every other extra.
ensure_venv() {
    local dir="$1" python="$2" extra="$3" base wanted
    base="$ROOT $python $("$python" -c 'import sys; print(sys.version)')"
    if [ "$(cat "$dir/made-of" 2>/dev/null)" != "$base" ] || ! "$dir/bin/python" -c '' 2>/dev/null; then
        say "making $dir with $python"
        rm -rf -- "$dir"
        "$python" -m venv "$dir" || die "$python could not make a virtual environment in $ROOT/$dir"
        printf '%s\n' "$base" >"$dir/made-of"
    fi
    wanted="$(checksum pyproject.toml)"
    [ "$(cat "$dir/installed-dev" 2>/dev/null)" != "$wanted" ] || return 0
    [ "$(cat "$dir/installed-$extra" 2>/dev/null)" != "$wanted" ] || return 0
    say "installing reactifact[$extra] into $dir"
    rm -f -- "$dir"/installed-*
    "$dir/bin/python" -m pip install --quiet --editable ".[$extra]" \
        || die "pip could not install reactifact[$extra]; its message stands above (the first run needs a package index)"
    printf '%s\n' "$wanted" >"$dir/installed-$extra"
}

# step NAME COMMAND...: run it and print how long it took; at a failure, end the script with its exit code.
step() {
    local name="$1" started=$SECONDS status=0
    shift
    printf -- '--- %s\n' "$name"
    "$@" || status=$?
    if [ "$status" -ne 0 ]; then
        printf -- '--- %s: FAILED with exit code %d after %d s\n' "$name" "$status" "$((SECONDS - started))" >&2
        exit "$status"
    fi
    printf -- '--- %s: ok, %d s\n' "$name" "$((SECONDS - started))"
}
