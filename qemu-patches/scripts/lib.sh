# shellcheck shell=bash
# Shared by the scripts here: where things are, how messages look, and the git store of the patch series.
#
# Two source trees are made from one store (build/qemu/git):
#   patched    build/qemu/src        all patches and the overlay
#   unpatched  build/unpatched/src   only patches marked "Also-unpatched: yes", for comparisons
# A third build, "sanitized", compiles the patched source once more, in build/sanitized.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
room=$top/qemu-patches
build=$top/build
store=$build/qemu/git
# Read by the scripts that source this file.
export overlay=$room/overlay
export source_record=$build/qemu/source

say()  { printf '== %s\n' "$*"; }
note() { printf '   %s\n' "$*"; }
die()  { printf 'error: %s\n' "$*" >&2; exit 1; }

# The value of one key of UPSTREAM, or of another key=value file.
value_of() {
    local key=$1 file=${2:-$room/UPSTREAM}
    sed -n "s/^$key=//p" "$file"
}

sha256_of() { sha256sum -- "$1" | cut -d' ' -f1; }

# Stop early, in words, where a later step would stop in the middle with a system error.
need_room() {
    local directory=$1 megabytes=$2 free
    mkdir -p -- "$directory" 2>/dev/null && [ -w "$directory" ] ||
        die "$directory is not writable by $(id -un): change its owner, or build in a checkout of your own"
    free=$(df -Pm -- "$directory" | awk 'NR == 2 { print $4 }')
    [ "$free" -ge "$megabytes" ] ||
        die "$directory has $free MiB free, this step needs about $megabytes MiB: free some space"
}

need_program() {
    command -v "$1" >/dev/null || die "$1 is not installed: run 'make deps' first"
}

# Only one script at a time may change the build folder; children of the holder pass through.
take_lock() {
    [ -z "${IDLETIME_BUILD_LOCKED:-}" ] || return 0
    need_room "$build" 1
    exec 9>"$build/.lock" || die "$build/.lock cannot be opened: is $build owned by another user?"
    if ! flock -n 9; then
        say "Another build runs in $build; waiting for it"
        flock 9
    fi
    export IDLETIME_BUILD_LOCKED=1
}

# Git on the store: nobody's settings, hooks or name take part, so that results are the same everywhere.
store_git() {
    GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_DIR=$store \
    GIT_AUTHOR_NAME=idletime GIT_AUTHOR_EMAIL=idletime@localhost GIT_AUTHOR_DATE='2000-01-01T00:00:00Z' \
    GIT_COMMITTER_NAME=idletime GIT_COMMITTER_EMAIL=idletime@localhost GIT_COMMITTER_DATE='2000-01-01T00:00:00Z' \
        git -c core.fsync=none -c gc.auto=0 "$@"
}

# Both trees keep their own index; the patched one has the store's default index.
tree_src()   { case $1 in patched|sanitized) echo "$build/qemu/src";; unpatched) echo "$build/unpatched/src";; *) die "no tree is called '$1': use patched, unpatched or sanitized";; esac; }
tree_obj()   { case $1 in sanitized) echo "$build/sanitized/obj";; *) echo "$(dirname "$(tree_src "$1")")/obj";; esac; }
tree_stage() { case $1 in patched) echo "$build/stage";; *) echo "$build/$1/stage";; esac; }
tree_ref()   { case $1 in patched|sanitized) echo refs/heads/series;; *) echo "refs/idletime/$1";; esac; }
tree_git() {
    local tree=$1; shift
    GIT_INDEX_FILE=$store/index$([ "$tree" = patched ] || echo ".$tree") GIT_WORK_TREE=$(tree_src "$tree") store_git "$@"
}

# The patches of a tree, in order.
tree_patches() {
    local file
    for file in "$room"/patches/*.patch; do
        [ -e "$file" ] || continue
        [ "$1" = patched ] || grep -q '^Also-unpatched: yes$' "$file" || continue
        printf '%s\n' "$file"
    done
}

# The part of a patch file above its "---" line, as a commit message.
patch_message() { sed -e '/^---$/,$d' -e '1s/^Subject: //' -- "$1"; }

# Add the given patches to a commit, in an index of their own (no source tree is touched). Prints the last commit.
# apply_series COMMIT [PATCH...]
apply_series() {
    local commit=$1 index=$store/index.series tree file log; shift
    log=$(mktemp)
    rm -f -- "$index" "$index.lock"
    GIT_INDEX_FILE=$index store_git read-tree "$commit"
    for file in "$@"; do
        if ! GIT_INDEX_FILE=$index store_git apply --cached --whitespace=nowarn "$file" 2>"$log"; then
            explain_reject "$commit" "$file" "$log"
            rm -f -- "$log" "$index"
            return 1
        fi
        tree=$(GIT_INDEX_FILE=$index store_git write-tree)
        commit=$(patch_message "$file" | store_git commit-tree "$tree" -p "$commit" -F -)
    done
    rm -f -- "$log" "$index"
    printf '%s\n' "$commit"
}

# Say which patch failed, on which QEMU, and show the hunks that found no place.
explain_reject() {
    local commit=$1 file=$2 log=$3 dir path
    printf 'error: %s does not apply to QEMU %s (written for %s): bring it up to date, see qemu-patches/README.md\n' \
        "patches/$(basename "$file")" "$(value_of version "$source_record")" "$(value_of version)" >&2
    dir=$(mktemp -d)
    while read -r path; do
        mkdir -p -- "$dir/$(dirname "$path")"
        store_git cat-file blob "$commit:$path" >"$dir/$path" 2>/dev/null ||
            printf 'error: %s, which the patch changes, does not exist in this QEMU\n' "$path" >&2
    done < <(sed -n 's,^--- a/,,p' "$file")
    if patch --directory="$dir" --strip=1 --fuzz=0 --force --silent --reject-file="$dir/.rejected" <"$file" >/dev/null 2>&1
    then cat -- "$log" >&2
    else sed 's/^/   /' "$dir/.rejected" >&2 2>/dev/null || cat -- "$log" >&2
    fi
    rm -rf -- "$dir"
}

# One commit of the series as a patch file: no dates, names or hashes, so that it is the same everywhere.
format_patch() {
    store_git log -1 --format=%B "$1" | sed -e '1s/^/Subject: /' | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}'
    printf -- '---\n'
    store_git diff --no-ext-diff --no-textconv --no-color --no-renames --diff-algorithm=myers --indent-heuristic \
        --unified=3 --inter-hunk-context=0 --full-index --binary --src-prefix=a/ --dst-prefix=b/ "$1^" "$1" |
        sed '/^index [0-9a-f]\{40\}\.\.[0-9a-f]\{40\}/d'
}

# 0002-virtio-blk-a-hook.patch, from the place in the series and the subject.
patch_name() {
    local slug
    slug=$(store_git log -1 --format=%s "$2" | sed -e 's/[^A-Za-z0-9_]\+/-/g' -e 's/^-//' | cut -c1-52 | sed 's/-$//')
    printf '%04d-%s.patch' "$1" "$slug"
}

# Write every commit of a series as a patch file into a directory: format_series BASE HEAD DIRECTORY
format_series() {
    local number=0 commit
    while read -r commit; do
        number=$((number + 1))
        format_patch "$commit" >"$3/$(patch_name "$number" "$commit")"
    done < <(store_git rev-list --reverse "$1..$2")
}

# The table of README.md: what each patch is for, from its Why-patch line.
patch_table() {
    local file
    printf '| patch | why it must exist |\n|---|---|\n'
    for file in "$1"/*.patch; do
        [ -e "$file" ] || continue
        # shellcheck disable=SC2016  # the backquotes are for the table
        printf '| `%s` | %s |\n' "$(basename "$file" .patch)" "$(sed -n 's/^Why-patch: //p' "$file" | head -n 1 | sed 's/|/\\|/g')"
    done
}

# README.md with its table replaced by the one of a directory of patches.
readme_with_table() {
    local line inside=no
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in
        '<!-- patches:begin'*) printf '%s\n' "$line"; patch_table "$1"; inside=yes;;
        '<!-- patches:end'*) printf '%s\n' "$line"; inside=no;;
        *) [ "$inside" = yes ] || printf '%s\n' "$line";;
        esac
    done <"$room/README.md"
}

# What the patched tree was made from; when it differs, the patches must be applied again.
series_stamp() {
    local file
    printf 'base=%s\n' "$(store_git rev-parse --verify -q "refs/tags/base-$(value_of sha256 "$source_record")^{commit}")"
    tree_patches "$1" | while read -r file; do printf '%s %s\n' "$(sha256_of "$file")" "$(basename "$file")"; done
}
