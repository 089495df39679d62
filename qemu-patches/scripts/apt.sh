# shellcheck shell=bash
# apt with a sources list and state of its own below build/: the system's configuration is only read. Sourced after lib.sh.
#
# All comes from the mirror that this machine is configured for; there is no other host in here.

keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# The machine's own Debian mirrors (main archive, security archive or nothing): what apt says of this release's main component.
own_mirrors() {
    local codename
    # shellcheck source=/dev/null
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    # shellcheck disable=SC2016  # the dollars are apt's
    apt-get indextargets --format '$(COMPONENT)|$(ORIGIN)|$(RELEASE)|$(REPO_URI)' 2>/dev/null |
        awk -F '|' -v codename="$codename" '
            # Lists that nobody has fetched yet have no origin.
            $1 != "main" || ($2 != "Debian" && $2 != "") { next }
            $3 == codename "-security" { if (!security) security = $4; next }
            $3 == codename || $3 ~ /^(old)*stable$/ { if (!main) main = $4 }
            END { if (main) print main, security }'
}

# What own_mirrors says, or the end in words. need_mirrors REMEDY
need_mirrors() {
    local mirrors
    command -v apt-get >/dev/null || die "this machine has no apt-get: $1"
    [ -f "$keyring" ] || die "$keyring is missing: run 'make deps', or install debian-archive-keyring"
    mirrors=$(own_mirrors)
    [ -n "$mirrors" ] || die "apt knows no mirror of this Debian release: put one into its sources and run 'apt-get update', or $1"
    printf '%s\n' "$mirrors"
}

# One line of a sources list: source_line deb|deb-src URI SUITE
source_line() { printf '%s [signed-by=%s] %s %s main\n' "$1" "$keyring" "$2" "$3"; }

# Lists and state in a folder, the sources list from stdin: private_apt FOLDER
private_apt() {
    mkdir -p -- "$1/lists/partial" "$1/cache/archives/partial"
    cat >"$1/sources.list"
    cat >"$1/apt.conf" <<END
Dir::Etc::sourcelist "$1/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "$1/lists";
Dir::Cache "$1/cache";
APT::Get::AllowUnauthenticated "false";
APT::Sandbox::User "$(id -un)";
Acquire::Languages "none";
Acquire::Retries "3";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
END
}

# The first package that another one depends on and whose name fits: dependency FOLDER PACKAGE REGEX
dependency() {
    apt-cache -c "$1/apt.conf" depends "$2" | sed -n "s/^ *|\\?Depends: \\($3\\)\$/\\1/p" | head -n 1
}
