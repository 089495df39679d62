/*
 * Idletime observer: which cgroups, or interfaces, are background.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Level-triggered: at each tick the names of the command line and of the file
 * are resolved anew, so that cgroups and taps may come and go.
 */
#include "observer.h"

#include <mntent.h>
#include <sys/stat.h>
#include <unistd.h>

/* After this no request that was made before a change is in service. */
#define FORGET_NS   120000000000ULL
/* Until all processors hear of what a member is now. */
#define LATE_NS     (SOON_NS / 10)

/* Where the hierarchy of the block controller is mounted. */
static const char *hierarchy(void)
{
    static char root[PATH_MAX];
    FILE *mounts = root[0] ? NULL : setmntent("/proc/self/mounts", "r");
    struct mntent *m;
    bool version1 = false;

    while (mounts && (m = getmntent(mounts))) {
        if (!strcmp(m->mnt_type, "cgroup") && hasmntopt(m, "blkio")) {
            snprintf(root, sizeof(root), "%s", m->mnt_dir);
            version1 = true;
        } else if (!strcmp(m->mnt_type, "cgroup2") && !version1) {
            snprintf(root, sizeof(root), "%s", m->mnt_dir);
        }
    }
    if (mounts) {
        endmntent(mounts);
    }
    return root;
}

/* As in the file system, or as /proc/PID/cgroup shows it. */
static bool directory_of(const char *path, char *directory, struct stat *st)
{
    const char *root = hierarchy();

    if (!strncmp(path, "/sys/", 5) ||
        (*root && !strncmp(path, root, strlen(root)))) {
        snprintf(directory, PATH_MAX, "%s", path);
    } else {
        snprintf(directory, PATH_MAX, "%s/%s", root, path);
    }
    return stat(directory, st) == 0 && S_ISDIR(st->st_mode);
}

uint64_t cgroup_resolve(const char *path)
{
    char directory[PATH_MAX];
    struct stat st;

    /* A cgroup's number is that of its directory. */
    return directory_of(path, directory, &st) ? st.st_ino : 0;
}

bool cgroup_check(const char *path)
{
    char directory[PATH_MAX], file[PATH_MAX + 32], line[256];
    struct stat st;

    if (!directory_of(path, directory, &st)) {
        return true;
    }
    /* It is there with version 2 only, and empty where there is none. */
    snprintf(file, sizeof(file), "%s/cgroup.controllers", directory);
    if (access(file, F_OK) == 0 &&
        (!read_line(file, line, sizeof(line)) || !strstr(line, "io"))) {
        return fail("%s has no io controller, so the kernel does not tell its "
                    "requests from others: enable it (echo +io into the "
                    "cgroup.subtree_control of each cgroup above, or "
                    "IOAccounting=yes for the unit)", directory);
    }
    return true;
}

/* Nobody changed the set by making the file unreadable. */
static void want_as_before(Groups *groups)
{
    for (unsigned i = 0; i < groups->members; i++) {
        groups->member[i].wanted |= !groups->member[i].until_ns;
    }
}

static void want(Groups *groups, const char *name)
{
    uint64_t id = groups->resolve(name);
    unsigned i;

    if (!id) {
        if (is_short()) {
            want_as_before(groups);     /* it may be there */
        }
        return;
    }
    for (i = 0; i < groups->members; i++) {
        if (groups->member[i].id == id) {
            groups->member[i].wanted = true;
            return;
        }
    }
    if (groups->members == groups->most) {
        if (!groups->complained) {
            warn("more than %u background cgroups or interfaces: '%s' and "
                 "others count as foreground; name one above them",
                 groups->most, name);
            groups->complained = true;
        }
        return;
    }
    groups->member[groups->members++] =
        (Member) { .id = id, .until_ns = 1, .wanted = true };
    if (groups->check && !groups->check(name)) {
        warn("background '%s': %s", name, what());
    }
}

static void want_listed(Groups *groups)
{
    char *line = NULL;
    size_t size = 0;
    FILE *file = fopen(groups->options->list, "re");

    if (!file) {
        want_as_before(groups);
        return;
    }
    while (getline(&line, &size, file) > 0) {
        line[strcspn(line, "\n")] = '\0';
        if (*line && *line != '#') {
            want(groups, line);
        }
    }
    fclose(file);
    free(line);
}

/*
 * Bring one member to where it is wanted; true: something changed.  One that
 * comes back is background from now on: what it did meanwhile is foreground.
 * Before its time is over it has not been away, if all processors hear of that
 * in time.
 */
static bool settle(Groups *groups, Member *m)
{
    uint64_t now = now_ns();

    if (m->wanted && m->until_ns) {
        m->from_ns = now + LATE_NS < m->until_ns ? m->from_ns : now + SOON_NS;
        m->until_ns = 0;
        return groups->put(groups->opaque, m->id, m->from_ns, UINT64_MAX);
    }
    if (!m->wanted && !m->until_ns) {
        m->until_ns = now + SOON_NS;
        return groups->put(groups->opaque, m->id, m->from_ns, m->until_ns);
    }
    return false;
}

bool groups_update(Groups *groups)
{
    bool changed = false;
    uint64_t now;
    unsigned i;

    for (i = 0; i < groups->members; i++) {
        groups->member[i].wanted = false;
    }
    for (i = 0; i < groups->options->backgrounds; i++) {
        want(groups, groups->options->background[i]);
    }
    if (groups->options->list) {
        want_listed(groups);
    }
    for (i = 0; i < groups->members; i++) {
        changed |= settle(groups, &groups->member[i]);
    }
    now = now_ns();
    for (i = 0; i < groups->members; i++) {
        Member *m = &groups->member[i];

        if (m->until_ns && now > m->until_ns + FORGET_NS) {
            groups->drop(groups->opaque, m->id);
            *m = groups->member[--groups->members];
            i--;
            changed = true;
        }
    }
    return changed;
}
