// SPDX-License-Identifier: GPL-2.0-or-later

package marks

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"idletime.org/guest-agent/internal/facts"
	"idletime.org/guest-agent/internal/wire"
)

func TestGroups(t *testing.T) {
	w := newWorld(t)
	book := w.book()
	w.write("cgroup/system/backup.service/cgroup.procs", "42\n43\n")
	w.write("cgroup/system/backup.service/cpu.weight", "100\n")
	w.write("cgroup/system/ssh.service/cgroup.procs", "50\n")
	for _, pid := range []int{42, 43, 50} {
		w.process(pid, 0, 0, "/system/backup.service", 1)
	}
	w.write("proc/50/stat", "50 (sshd) S 1 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0 1 0")
	path, problem := book.Resolve(0, wire.Target{Unit: "backup"})
	must(t, problem)
	done, problem := book.MarkGroup(path)
	must(t, problem)
	w.expect(42, "/system/backup.service 6000/0 6000/0")
	if done.Processes != 2 || len(w.packets) != 1 || w.packets[0].Path != path || w.files() != 3 {
		t.Errorf("%+v, packets of %v, %d files", done, w.packets, w.files())
	}
	w.process(44, 0, 0, path, 1)
	w.write("cgroup/system/backup.service/cgroup.procs", "42\n43\n44\n")
	book.Follow()
	w.expect(44, "/system/backup.service 6000/0 6000/0")
	done, problem = book.UnmarkGroup(path)
	must(t, problem)
	w.expect(44, "/system/backup.service 0/0 4001/0")
	if done.Processes != 3 || len(w.packets) != 0 || w.files() != 0 {
		t.Errorf("%+v, packets of %v, %d files", done, w.packets, w.files())
	}
	for _, test := range []struct {
		target wire.Target
		want   string
	}{
		{wire.Target{Cgroup: "/"}, "not-found"}, {wire.Target{Cgroup: "/gone"}, "not-found"},
		{wire.Target{Cgroup: "../../etc"}, "not-found"}, {wire.Target{Unit: "gone"}, "not-found"},
	} {
		if _, problem := book.Resolve(0, test.target); code(problem) != test.want {
			t.Errorf("%+v: %v", test.target, problem)
		}
	}
	if _, problem := book.MarkGroup("/system/ssh.service"); code(problem) != "protected" {
		t.Errorf("sshd's group: %v", problem)
	}
	if _, problem := book.UnmarkGroup(path); code(problem) != "not-marked" {
		t.Errorf("twice: %v", problem)
	}
}

// TestAnSSHDOfAUserIsLeftOut of a marked group, also one that comes later.
func TestAnSSHDOfAUserIsLeftOut(t *testing.T) {
	w := newWorld(t)
	book := w.book()
	w.process(42, 0, 1000, backup, 1)
	sshd := func(pid int) {
		w.process(pid, 0, 1000, backup, 1)
		w.write(fmt.Sprintf("proc/%d/stat", pid), fmt.Sprintf("%d (sshd) S 1 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0 1 0", pid))
	}
	sshd(43)
	w.write("cgroup"+backup+"/cgroup.procs", "42\n43\n")
	done, problem := book.MarkGroup(backup)
	must(t, problem)
	if done.Processes != 1 {
		t.Errorf("%d processes, not 1", done.Processes)
	}
	sshd(44)
	w.process(45, 0, 1000, backup, 1)
	w.write("cgroup"+backup+"/cgroup.procs", "42\n43\n44\n45\n")
	book.Follow()
	for pid, want := range map[int]string{42: " 6000/0 6000/0", 43: " 0/0 4001/0", 44: " 0/0 4001/0", 45: " 6000/0 6000/0"} {
		w.expect(pid, backup+want)
	}
}

func TestWithoutCgroups(t *testing.T) {
	w := newWorld(t)
	w.process(42, 0, 1000, "", 1)
	book, err := New(facts.Root(w.root), w, nil, "", 77)
	if err != nil {
		t.Fatal(err)
	}
	book.Load()
	done, problem := book.Mark(1000, 42, "test")
	must(t, problem)
	w.expect(42, " 6000/0 6000/0")
	if len(done.Lacks) != 1 || !strings.Contains(done.Lacks[0], "cgroup v2 is not mounted") {
		t.Errorf("it lacks %q", done.Lacks)
	}
	if _, problem := book.Resolve(0, wire.Target{Cgroup: "/a"}); code(problem) != "not-found" {
		t.Errorf("%v", problem)
	}
	if err := book.Close(); err != nil {
		t.Error(err)
	}
}

func TestAMarkOfAGroupEnds(t *testing.T) {
	w := newWorld(t)
	book := w.book()
	w.process(42, 0, 0, "/system/backup.service", 1)
	w.write("cgroup/system/backup.service/cgroup.procs", "42\n")
	_, problem := book.MarkGroupUntil("/system/backup.service", 1000)
	must(t, problem)
	// What an agent has written down another one takes up.
	book = w.book()
	if ended := book.Expire(time.Unix(999, 0)); ended != 0 || book.Count() != (wire.Counts{Processes: 1, Cgroups: 1}) {
		t.Errorf("%d ended, %+v are marked", ended, book.Count())
	}
	if ended := book.Expire(time.Unix(1000, 0)); ended != 1 || book.Count() != (wire.Counts{}) {
		t.Errorf("%d ended, %+v are marked", ended, book.Count())
	}
	w.expect(42, "/system/backup.service 0/0 4001/0")
}
