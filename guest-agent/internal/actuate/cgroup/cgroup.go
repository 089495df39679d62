// SPDX-License-Identifier: GPL-2.0-or-later

// Package cgroup moves processes into the background group and makes groups give way: processor time, the weight of the
// guest's own I/O scheduler, the class of write-back, page cache.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const (
	// Slice is the parent of the background group.
	Slice = "/idletime.slice"
	// Background is the group that marked processes are moved to where no systemd runs. Processes are only in leaves.
	Background = Slice + "/background"
)

// Tree is the cgroup v2 hierarchy.
type Tree struct {
	// Mount is where it is mounted.
	Mount string
}

// Attributes are values of files of a group, by name of the file.
type Attributes map[string]string

// wish is what a quiet group has in a file; the value "" is set later, and only what was before is noted.
type wish struct {
	file, value string
	// lack is the plain word for a kernel without that file; empty where another entry says it.
	lack string
	// managed: systemd writes this file for its units.
	managed bool
}

// set gives a file of a group what a quiet group has in it.
func (w wish) set(file string) error {
	if w.value == "" {
		return nil
	}
	return write(file, w.value)
}

// Applied in this order; cpu.idle decides the weight, so what was before goes back in this order, too.
var wishes = []wish{
	{"cpu.idle", "1", "", true},
	{"cpu.weight", "1", "processor time is not given up: this cgroup has neither cpu.idle nor cpu.weight", true},
	{"io.weight", "default 1", "", true},
	{"io.bfq.weight", "1", "", true},
	{"io.prio.class", "idle", "write-back of buffered writes is not marked: this kernel has no io.prio.class", false},
	{MemoryHigh, "", "page cache is not limited: this cgroup has no memory.high", false},
}

func (t Tree) path(group string, elements ...string) string {
	return filepath.Join(append([]string{t.Mount, filepath.Clean("/" + group)}, elements...)...)
}

// Has tells whether a group exists.
func (t Tree) Has(group string) bool {
	info, err := os.Stat(t.path(group))
	return err == nil && info.IsDir()
}

// Gone tells whether a group has ended; one that cannot be looked at has not.
func (t Tree) Gone(group string) bool {
	info, err := os.Stat(t.path(group))
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) || err == nil && !info.IsDir()
}

// Find lists the groups whose path matches a pattern, as of path.Match.
func (t Tree) Find(pattern string) (groups []string) {
	found, _ := filepath.Glob(t.path(pattern))
	for _, each := range found {
		groups = append(groups, strings.TrimPrefix(each, filepath.Clean(t.Mount)))
	}
	return groups
}

// ID is the number by which the kernel knows a group.
func (t Tree) ID(group string) (uint64, error) {
	info, err := os.Stat(t.path(group))
	if err != nil {
		return 0, err
	}
	return info.Sys().(*syscall.Stat_t).Ino, nil
}

// Prepare makes the background group; says in plain words what it cannot give up.
func (t Tree) Prepare() (lacks []string, err error) {
	t.delegate("/")
	if err := os.MkdirAll(t.path(Slice), 0o755); err != nil {
		return nil, err
	}
	t.delegate(Slice)
	if err := os.MkdirAll(t.path(Background), 0o755); err != nil {
		return nil, err
	}
	// Processor time is shared out among the children of the root, write-back is classed where the process is.
	return both(t.Quiet(Slice), t.Quiet(Background)), nil
}

// both keeps what is lacking in the slice and in the group.
func both(outer, inner []string) (lacks []string) {
	for _, each := range outer {
		for _, other := range inner {
			if each == other {
				lacks = append(lacks, each)
			}
		}
	}
	return lacks
}

// delegate lets children of a group have the controllers; each by itself, since one that is missing fails the whole line.
func (t Tree) delegate(group string) {
	for _, controller := range []string{"+cpu", "+io", "+memory"} {
		_ = write(t.path(group, "cgroup.subtree_control"), controller)
	}
}

// Before reads what Quiet changes, for Restore. The kernel tells no weight of a group that is idle, so where there is cpu.idle
// that alone is read.
func (t Tree) Before(group string) Attributes { return t.before(group, false) }

// BeforeUnit is Before for QuietUnit.
func (t Tree) BeforeUnit(group string) Attributes { return t.before(group, true) }

func (t Tree) before(group string, unit bool) Attributes {
	found := Attributes{}
	for _, each := range wishes {
		old, err := os.ReadFile(t.path(group, each.file))
		if _, idle := found["cpu.idle"]; err == nil && !(unit && each.managed) && !(idle && each.file == "cpu.weight") {
			found[each.file] = firstLine(string(old))
		}
	}
	return found
}

// Quiet makes a group give way; returns in plain words what this kernel does not have.
func (t Tree) Quiet(group string) (lacks []string) { return t.quiet(group, false) }

// QuietUnit is Quiet for the group of a unit that systemd has made give way: what systemd knows nothing of.
func (t Tree) QuietUnit(group string) (lacks []string) { return t.quiet(group, true) }

func (t Tree) quiet(group string, unit bool) (lacks []string) {
	idle := false
	for _, each := range wishes {
		if idle && each.file == "cpu.weight" {
			continue
		}
		file := t.path(group, each.file)
		_, err := os.Stat(file)
		if err == nil && !(unit && each.managed) {
			err = each.set(file)
			idle = idle || err == nil && each.file == "cpu.idle"
		}
		if err != nil && each.lack != "" {
			lacks = append(lacks, each.lack)
		}
	}
	return lacks
}

// Restore writes back what Before found. A group that is gone needs nothing.
func (t Tree) Restore(group string, before Attributes) error {
	var problems []error
	for _, each := range wishes {
		value, known := before[each.file]
		if !known {
			continue
		}
		if err := write(t.path(group, each.file), value); err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// write is one write(2) to a file that must exist: cgroup files take a value at a time.
func write(path, value string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(value)
	return errors.Join(err, file.Close())
}

// Move puts a process with all its threads into a group.
func (t Tree) Move(pid int, group string) error {
	if err := write(t.path(group, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
		return fmt.Errorf("moving process %d to cgroup %s: %w", pid, group, err)
	}
	return nil
}

// Processes lists the processes of a group and of all groups below it.
func (t Tree) Processes(group string) ([]int, error) {
	var pids []int
	err := filepath.WalkDir(t.path(group), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return skipGone(err)
		}
		data, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		for _, word := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return skipGone(err)
	})
	return pids, err
}

// skipGone lets a walk go on where a group has ended meanwhile.
func skipGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return nil
	}
	return err
}

// Remove takes the background group away if it is empty; systemd's slice stays as long as systemd wants it.
func (t Tree) Remove() {
	if os.Remove(t.path(Background)) == nil {
		_ = os.Remove(t.path(Slice))
	}
}

// limits are files that bound what the processes of a group may use; `none` is what they begin with without a limit.
var limits = []struct{ file, none string }{
	{"memory.max", unlimited}, {MemoryHigh, unlimited}, {"memory.swap.max", unlimited}, {"pids.max", unlimited},
	{"cpu.max", unlimited}, {"cpuset.cpus", ""}, {"io.max", ""},
}

// Limit names a limit that a process would leave behind by being moved out of a group to one below `above`, the root or one
// of its ancestors: "pids.max of /user.slice". It is "" where there is none.
func (t Tree) Limit(group, above string) string {
	for ; group != above && group != "" && group != "/" && group != "." && group != Slice; group = filepath.Dir(group) {
		for _, each := range limits {
			data, err := os.ReadFile(t.path(group, each.file))
			if value, _, _ := strings.Cut(strings.TrimSpace(string(data)), " "); err == nil && value != each.none {
				return each.file + " of " + group
			}
		}
	}
	return ""
}
