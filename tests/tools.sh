#!/usr/bin/env bash
# Installs what tests need from Debian and is missing: chromium, and promtool of the package prometheus.
# promtool is extracted, because the installed package starts a server.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly FOLDER=.venv/tools TRIES=4

root=()
[ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && root=(sudo -n); }

fail() {
    echo "make tools: $1" >&2
    exit 1
}

# Runs a command of apt. Mirrors fail now and then, and lists of packages become outdated.
retried() {
    local try
    for ((try = 1; try <= TRIES; try++)); do
        "$@" && return
        [ "$try" = "$TRIES" ] || { sleep $((try * 3)); "${root[@]}" apt-get update -qq || true; }
    done
    return 1
}

install_chromium() {
    retried "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
        -o DPkg::Lock::Timeout=120 chromium >/dev/null
}

# A caller that handles the failure of a function turns `set -e` off in it: steps are joined by &&.
install_promtool() {
    local temporary
    temporary=$(mktemp -d)
    # shellcheck disable=SC2064 # the folder of now
    trap "rm -rf '$temporary'" EXIT
    (cd "$temporary" && retried apt-get download -qq -o APT::Sandbox::User=root prometheus) &&
        dpkg --fsys-tarfile "$temporary"/prometheus_*.deb | tar -xOf - ./usr/bin/promtool >"$temporary/promtool" &&
        chmod +x "$temporary/promtool" && mkdir -p "$FOLDER" && mv "$temporary/promtool" "$FOLDER/promtool"
}

present() {
    command -v "$1" >/dev/null || [ -x "$FOLDER/$1" ]
}

for tool in chromium promtool; do
    present "$tool" && continue
    command -v apt-get >/dev/null || fail "$tool is missing, and there is no apt-get to install it: put it in the PATH"
    echo "installing $tool"
    "install_$tool" || fail "$tool could not be installed; apt-get needs root and a mirror of Debian: put $tool in the PATH"
done
