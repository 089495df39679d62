// SPDX-License-Identifier: GPL-2.0-or-later

package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"
	"testing"

	"idletime.org/guest-agent/internal/actuate"
)

// fixture is a tree of files; what a kernel would do with a write, these do not.
func fixture(t *testing.T, files map[string]string) Tree {
	t.Helper()
	tree := Tree{Mount: t.TempDir()}
	for path, content := range files {
		path = filepath.Join(tree.Mount, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return tree
}

func read(t *testing.T, tree Tree, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(tree.Mount, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestQuietAndRestore(t *testing.T) {
	for name, test := range map[string]struct {
		files, quiet map[string]string
		lacks        int
	}{
		"a new kernel": {
			map[string]string{"cpu.idle": "0\n", "cpu.weight": "100\n", "io.weight": "default 100\n8:0 50\n", "io.prio.class": "no-change\n", "memory.high": "max\n"},
			map[string]string{"cpu.idle": "1", "cpu.weight": "100\n", "io.prio.class": "idle", "memory.high": "max\n"}, 0,
		},
		"5.10":           {map[string]string{"cpu.weight": "100\n", "memory.high": "max\n"}, map[string]string{"cpu.weight": "1"}, 1},
		"no controllers": {map[string]string{"cgroup.procs": ""}, nil, 3},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{}
			for file, content := range test.files {
				files["g/"+file] = content
			}
			tree := fixture(t, files)
			before, lacks := tree.Before("/g"), tree.Quiet("/g")
			if len(lacks) != test.lacks {
				t.Errorf("it lacks %q", lacks)
			}
			for file, want := range test.quiet {
				// O_TRUNC is nothing that cgroup files know, so a fixture keeps the rest of a longer content.
				if got := read(t, tree, "g/"+file); !strings.HasPrefix(got, want) {
					t.Errorf("%s is %q, not %q", file, got, want)
				}
			}
			if err := tree.Restore("/g", before); err != nil {
				t.Error(err)
			}
			for file, content := range test.files {
				if got := read(t, tree, "g/"+file); !strings.HasPrefix(got, strings.Split(content, "\n")[0]) {
					t.Errorf("%s is %q afterwards, not %q", file, got, content)
				}
			}
		})
	}
}

func TestRestoreOfAGroupThatIsGone(t *testing.T) {
	if err := fixture(t, nil).Restore("/gone", Attributes{"cpu.idle": "0"}); err != nil {
		t.Error(err)
	}
}

func TestPrepareMakesTheGroup(t *testing.T) {
	tree := fixture(t, map[string]string{"cgroup.subtree_control": ""})
	lacks, err := tree.Prepare()
	if err != nil || !tree.Has(Background) || len(lacks) != 3 {
		t.Errorf("lacks %q (%v), made: %v", lacks, err, tree.Has(Background))
	}
	id, err := tree.ID(Background)
	if err != nil || id == 0 {
		t.Errorf("its number is %d (%v)", id, err)
	}
	tree.Remove()
	if tree.Has(Slice) {
		t.Error("it is left")
	}
}

func TestProcesses(t *testing.T) {
	tree := fixture(t, map[string]string{"g/cgroup.procs": "1\n2\n", "g/a/cgroup.procs": "3\n", "g/b/other": "9", "h/cgroup.procs": "4\n"})
	got, err := tree.Processes("/g")
	sort.Ints(got)
	if err != nil || !reflect.DeepEqual(got, []int{1, 2, 3}) {
		t.Errorf("got %v (%v)", got, err)
	}
	if got, err := tree.Processes("/gone"); err != nil || len(got) != 0 {
		t.Errorf("a group that is gone has %v (%v)", got, err)
	}
}

func TestMemory(t *testing.T) {
	tree := fixture(t, map[string]string{
		"g/memory.current": "1000\n", "g/memory.high": "max\n", "h/memory.high": "4096\n",
		"g/memory.stat": "anon 500\nfile 450\ninactive_file 300\nactive_file 100\nslab_reclaimable 20\nworkingset_refault_file 7\n",
	})
	memory, err := tree.Memory("/g")
	if err != nil || memory != (actuate.Memory{Current: 1000, Cache: 420}) {
		t.Errorf("%+v (%v)", memory, err)
	}
	if _, err := tree.Memory("/h"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a group without memory.current: %v", err)
	}
	for group, want := range map[string]int64{"/g": actuate.NoLimit, "/h": 4096} {
		if got, err := tree.High(group); err != nil || got != want {
			t.Errorf("%s: %d (%v), not %d", group, got, err, want)
		}
	}
	if err := tree.SetHigh("/g", 123456); err != nil || read(t, tree, "g/memory.high") != "123456" {
		t.Errorf("%q (%v)", read(t, tree, "g/memory.high"), err)
	}
	if got := tree.Find("/[a-z]"); !reflect.DeepEqual(got, []string{"/g", "/h"}) {
		t.Errorf("found %q", got)
	}
}

func TestPathsStayBelowTheMount(t *testing.T) {
	tree := Tree{Mount: "/m"}
	for _, group := range []string{"../../etc", "/../etc", "a/../../etc"} {
		if got := tree.path(group); got != "/m/etc" {
			t.Errorf("%s is %s", group, got)
		}
	}
}

func TestLimit(t *testing.T) {
	tree := fixture(t, map[string]string{
		"user/pids.max": "100\n", "user/a/pids.max": "max\n", "free/pids.max": "max\n", "free/cpu.max": "max 100000\n",
		"cpu/cpu.max": "50000 100000\n", "set/cpuset.cpus": "0-1\n", "free/cpuset.cpus": "\n", "free/io.max": "",
	})
	for group, want := range map[string]string{
		"/user/a": "pids.max of /user", "/free": "", "/cpu": "cpu.max of /cpu", "/set": "cpuset.cpus of /set", "/": "", "": "",
	} {
		if got := tree.Limit(group, "/"); got != want {
			t.Errorf("leaving %s leaves %q, not %q", group, got, want)
		}
	}
}

// TestLimitsAboveStay: what both the old place and the new one are below of is not left.
func TestLimitsAboveStay(t *testing.T) {
	tree := fixture(t, map[string]string{"user/pids.max": "100\n", "user/a/pids.max": "max\n", "user/b/memory.max": "9\n"})
	for group, want := range map[string]string{"/user/a": "", "/user/b": "memory.max of /user/b"} {
		if got := tree.Limit(group, "/user"); got != want {
			t.Errorf("leaving %s leaves %q, not %q", group, got, want)
		}
	}
}

// TestQuietUnit: what systemd writes is not touched.
func TestQuietUnit(t *testing.T) {
	tree := fixture(t, map[string]string{"u/cpu.weight": "100\n", "u/io.prio.class": "no-change\n", "u/memory.high": "max\n", "v/cgroup.procs": ""})
	before, lacks := tree.BeforeUnit("/u"), tree.QuietUnit("/u")
	if len(lacks) != 0 || len(before) != 2 || read(t, tree, "u/cpu.weight") != "100\n" || !strings.HasPrefix(read(t, tree, "u/io.prio.class"), "idle") {
		t.Errorf("lacks %q, before %v", lacks, before)
	}
	if lacks := tree.QuietUnit("/v"); len(lacks) != 3 {
		t.Errorf("it lacks %q", lacks)
	}
}
