#!/usr/bin/env bash
# Installs the servers that the tests talk to, from Debian's packages, where they are missing. Never fails: without
# them the tests that need them are skipped, and say so.
set -euo pipefail

readonly programs=(prometheus promtool prometheus-alertmanager amtool victoria-metrics)
readonly packages=(prometheus prometheus-alertmanager victoria-metrics)
readonly policy=/usr/sbin/policy-rc.d # Debian asks it before a package starts a daemon; 101 means no

say() { printf 'servers: %s\n' "$*"; }

as_root() {
    if [[ $(id -u) == 0 ]]; then "$@"; else sudo -n "$@"; fi
}

missing() {
    local program
    for program in "${programs[@]}"; do
        command -v "$program" >/dev/null || printf '%s ' "$program"
    done
}

# The tests start their own servers on free ports; the packages' daemons must not run beside them.
forbid_daemons() {
    [[ -e $policy ]] && return
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
    trap 'as_root rm -f "$policy"' EXIT
}

install() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q -o DPkg::Lock::Timeout=120 \
        --no-install-recommends "${packages[@]}"
}

[[ -z $(missing) ]] && exit 0
say "missing: $(missing)"
if command -v apt-get >/dev/null && as_root true 2>/dev/null; then
    say "installing Debian's ${packages[*]}"
    forbid_daemons || true
    log=$(mktemp)
    { install || { as_root apt-get update -q && install; }; } >"$log" 2>&1 || tail -n 5 "$log"
    rm -f "$log"
fi
if [[ -n $(missing) ]]; then
    say "without $(missing)the tests that need them are skipped; as root: apt-get install ${packages[*]}"
fi
exit 0
