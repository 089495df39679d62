// SPDX-License-Identifier: GPL-2.0-or-later

package marks

import (
	"errors"
	"testing"

	"idletime.org/guest-agent/internal/actuate/ioprio"
	"idletime.org/guest-agent/internal/wire"
)

// TestReleaseLeavesNothing of what an earlier agent has marked: processes, children with a mark of their own, cgroups.
func TestReleaseLeavesNothing(t *testing.T) {
	w := newWorld(t)
	first := w.book()
	w.write("cgroup/other/cgroup.procs", "60\n")
	w.write("cgroup/other/cpu.weight", "70\n")
	w.process(42, 0, 1000, "/user", 1)
	w.process(43, 42, 1000, "/user", 2)
	w.process(44, 0, 1000, "/user", 3)
	w.process(60, 0, 0, "/other", 1)
	for _, pid := range []int{43, 42, 44} {
		_, problem := first.Mark(1000, pid, "test")
		must(t, problem)
	}
	_, problem := first.MarkGroup("/other")
	must(t, problem)
	book := w.book()
	w.process(44, 0, 1000, "/user", 9) // the number is another process's now
	if err := errors.Join(book.Release(), book.Close()); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{42, 43, 44} {
		w.expect(pid, fresh)
	}
	w.expect(60, "/other 0/0 4001/0")
	if w.files() != 0 || book.Count() != (wire.Counts{}) || len(w.packets) != 0 {
		t.Errorf("%d files, %+v and packets of %v are left", w.files(), book.Count(), w.packets)
	}
}

// TestReleaseLeavesAChildItsOwn: what it had before its own mark, here the idle priority, and not what its parent had.
func TestReleaseLeavesAChildItsOwn(t *testing.T) {
	w := newWorld(t)
	w.write("proc/uptime", "0.01 0.00\n")
	book := w.book()
	w.process(42, 0, 1000, "/user", 1)
	for pid := 50; pid < 60; pid++ {
		w.process(pid, 42, 1000, "/user", pid)
		w.threads[pid][0].IOPrio = ioprio.Idle | 7
	}
	for pid := 50; pid < 60; pid++ {
		_, problem := book.Mark(1000, pid, "test")
		must(t, problem)
	}
	_, problem := book.Mark(1000, 42, "test")
	must(t, problem)
	if err := book.Release(); err != nil {
		t.Fatal(err)
	}
	for pid := 50; pid < 60; pid++ {
		w.expect(pid, "/user 6007/0 4001/0")
	}
}

// TestReleaseGivesUnitsBack, those that were marked and those that gave way because their processes were; what systemd does not
// do is said, and stays written down.
func TestReleaseGivesUnitsBack(t *testing.T) {
	w, units, book := withSystemd(t)
	for _, pid := range []int{42, 43} {
		_, problem := book.Mark(0, pid, "test")
		must(t, problem)
	}
	_, problem := book.MarkGroup(session)
	must(t, problem)
	units.expect("quiet a.service", "quiet session-1.scope")
	units.fail = errors.New("systemd is busy")
	if err := book.Release(); err == nil {
		t.Error("it is not said that systemd is busy")
	}
	if w.files() != 2 {
		t.Errorf("%d files, not one for each unit", w.files())
	}
	units.fail, units.told = nil, nil
	if err := w.bookWith(units).Release(); err != nil {
		t.Fatal(err)
	}
	if w.files() != 0 || len(units.told) != 2 {
		t.Errorf("%d files, systemd was told %q", w.files(), units.told)
	}
	w.expect(50, session+" 0/0 4001/0")
}
