# shellcheck shell=bash
# Where the recipes of the packages keep what they fetch and build. Sourced by the scripts here.

# shellcheck source=qemu-patches/scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../qemu-patches/scripts/lib.sh"
# shellcheck source=qemu-patches/scripts/apt.sh
. "$(dirname "${BASH_SOURCE[0]}")/../qemu-patches/scripts/apt.sh"

# All read by the scripts that source this file.
export recipes=$top/packages
export output=${PACKAGES_OUTPUT:-$build/packages}
export debian_source=$output/source
export suites='bookworm trixie'

# The release that this machine runs: bookworm, trixie.
own_suite() {
    # shellcheck source=/dev/null
    (. /etc/os-release && echo "${VERSION_CODENAME:-}")
}

# Run a command with its output in a log, and show the log's end where it fails: logged LOG COMMAND...
logged() {
    local log=$1 status=0; shift
    mkdir -p -- "$(dirname "$log")"
    "$@" >"$log" 2>&1 </dev/null || status=$?
    [ $status -eq 0 ] && return
    tail -n 30 -- "$log" | sed 's/^/   /' >&2
    return $status
}

# A number that grows with every change to a folder: its commits. revision FOLDER...
revision() {
    [ "$(git -C "$top" rev-parse --is-shallow-repository)" = false ] ||
        die "$top is a shallow clone, whose commits cannot be counted: run 'git fetch --unshallow'"
    git -C "$top" rev-list --count HEAD -- "$@"
}

# Above Debian's version and below its next one; on an older release below ours of a newer one, so that an upgrade of the
# release upgrades the package. qemu_version DEBIAN-VERSION REVISION SUITE
qemu_version() {
    local older=
    [ "$3" != bookworm ] || older='~bpo12'
    printf '%s+idletime%s%s\n' "$1" "$2" "$older"
}
