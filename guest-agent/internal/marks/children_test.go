// SPDX-License-Identifier: GPL-2.0-or-later

package marks

import (
	"testing"
	"time"

	"idletime.org/guest-agent/internal/actuate"
	"idletime.org/guest-agent/internal/actuate/cgroup"
	"idletime.org/guest-agent/internal/actuate/ioprio"
	"idletime.org/guest-agent/internal/wire"
)

// markedParent has a marked process, 42, and 43, its child since then.
func markedParent(t *testing.T, uid uint32) (*world, *Book) {
	w := newWorld(t)
	book := w.book()
	w.process(42, 0, uid, "/user", 1)
	_, problem := book.Mark(0, 42, "test")
	must(t, problem)
	w.process(43, 42, uid, cgroup.Background, 2)
	w.threads[43] = []actuate.Thread{{TID: 43, IOPrio: ioprio.Idle}}
	return w, book
}

func TestChildrenGoBackWithTheirParent(t *testing.T) {
	w, book := markedParent(t, 0)
	w.process(44, 43, 0, cgroup.Background, 2)
	w.threads[44] = []actuate.Thread{{TID: 44, IOPrio: ioprio.Idle}}
	_, problem := book.Mark(0, 44, "a mark of its own")
	must(t, problem)
	done, problem := book.Unmark(0, 42)
	must(t, problem)
	w.expect(43, "/user 0/0")
	w.expect(44, cgroup.Background+" 6000/0")
	if done.Processes != 2 {
		t.Errorf("%d processes, not 2", done.Processes)
	}
	_, problem = book.Unmark(0, 44)
	must(t, problem)
	// It was idle when it was marked, and it came from the group of its parent's parent.
	w.expect(44, "/user 6000/0")
}

// TestOlderChildrenAreLeft: they did not inherit the mark; nor did what they start.
func TestOlderChildrenAreLeft(t *testing.T) {
	w := newWorld(t)
	w.write("proc/uptime", "5.00 1.00\n")
	book := w.book()
	w.process(42, 0, 0, "/user", 100)
	w.process(43, 42, 0, "/user", 200)
	w.threads[43] = []actuate.Thread{{TID: 43, IOPrio: ioprio.Idle}}
	_, problem := book.Mark(0, 42, "test")
	must(t, problem)
	w.process(44, 43, 0, "/user", 600)
	w.threads[44] = []actuate.Thread{{TID: 44, IOPrio: ioprio.Idle}}
	w.process(45, 42, 0, cgroup.Background, 500)
	w.threads[45] = []actuate.Thread{{TID: 45, IOPrio: ioprio.Idle}}
	for _, pid := range []int{43, 44} {
		if _, problem := book.Unmark(0, pid); problem == nil || problem.Code != wire.CodeNotMarked {
			t.Errorf("%d: %v", pid, problem)
		}
	}
	done, problem := book.Unmark(0, 42)
	must(t, problem)
	if done.Processes != 2 {
		t.Errorf("%d processes, not 2", done.Processes)
	}
	w.expect(43, "/user 6000/0")
	w.expect(44, "/user 6000/0")
	w.expect(45, "/user 0/0")
}

// TestAChildThatARuleFindsLaterGoesBack: it is idle by its parent's mark, not by its owner's wish.
func TestAChildThatARuleFindsLaterGoesBack(t *testing.T) {
	w := newWorld(t)
	w.write("proc/uptime", "5.00 1.00\n")
	book := w.book()
	w.process(42, 0, 0, "/user", 100)
	_, problem := book.MarkByRule(42, "make")
	must(t, problem)
	w.process(43, 42, 0, book.Root.Cgroup(42), 600)
	w.threads[43] = []actuate.Thread{{TID: 43, IOPrio: ioprio.Idle}}
	_, problem = book.MarkByRule(43, "make")
	must(t, problem)
	for _, pid := range []int{42, 43} {
		_, problem = book.Unmark(0, pid)
		must(t, problem)
	}
	w.expect(43, "/user 0/0")
}

// TestAChildWhoseNumberIsUsedAgainIsNotUnmarked.
func TestAChildWhoseNumberIsUsedAgainIsNotUnmarked(t *testing.T) {
	w, book := markedParent(t, 0)
	w.spawn = func(int) {
		w.spawn = nil
		w.process(43, 0, 1000, cgroup.Background, 9)
		w.threads[43] = []actuate.Thread{{TID: 43, IOPrio: ioprio.Idle}}
	}
	_, problem := book.Unmark(0, 42)
	must(t, problem)
	w.expect(42, fresh)
	w.expect(43, cgroup.Background+" 6000/0")
}

// orphans has 42 end, and leave 43 and its child 44, of uid 1000, and 45 of another one.
func orphans(t *testing.T, origin string, until int64) (*world, *Book) {
	w := newWorld(t)
	book := w.book()
	w.process(42, 0, 1000, "/user", 1)
	_, problem := book.MarkUntil(0, 42, origin, until)
	must(t, problem)
	w.process(43, 0, 1000, cgroup.Background, 2)
	w.process(44, 43, 1000, cgroup.Background, 3)
	w.process(45, 0, 1001, cgroup.Background, 4)
	for pid := 43; pid <= 45; pid++ {
		w.threads[pid] = []actuate.Thread{{TID: pid, IOPrio: ioprio.Idle}}
	}
	w.write("cgroup"+cgroup.Background+"/cgroup.procs", "44\n43\n45\n")
	w.write("cgroup"+cgroup.Background+"/cgroup.events", "populated 1\n")
	w.end(42)
	return w, book
}

func TestChildrenOfAnEndedProcessKeepItsMark(t *testing.T) {
	for name, prune := range map[string]func(*world, *Book) *Book{
		"at a look":        func(_ *world, book *Book) *Book { book.Prune(); return book },
		"by another agent": func(w *world, _ *Book) *Book { return w.book() },
	} {
		t.Run(name, func(t *testing.T) {
			w, book := orphans(t, "test", 1000)
			book = prune(w, book)
			if len(w.packets) != 1 || w.packets[0].Path != cgroup.Background {
				t.Errorf("packets of %v", w.packets)
			}
			// 44 has inherited from 43, and 45 is not of the user whose process has ended.
			if got := book.List(-1); len(got) != 1 || got[0].PID != 43 || got[0].Origin != "test" {
				t.Errorf("marked: %+v", got)
			}
			book = w.book()
			if ended := book.Expire(time.Unix(1000, 0)); ended != 1 || w.files() != 0 {
				t.Errorf("%d ended, %d files", ended, w.files())
			}
			w.expect(43, "/user 0/0")
			w.expect(44, "/user 0/0")
			w.expect(45, cgroup.Background+" 6000/0")
			if book.Prune(); len(w.packets) != 1 {
				t.Errorf("packets of 45 are not marked any more: %v", w.packets)
			}
			w.write("cgroup"+cgroup.Background+"/cgroup.events", "populated 0\n")
			if book.Prune(); len(w.packets) != 0 {
				t.Errorf("packets of %v", w.packets)
			}
		})
	}
}

// TestChildrenOfAnEndedProcessThatWasNotMoved: the idle ones of its user that came after the mark, in its cgroup.
func TestChildrenOfAnEndedProcessThatWasNotMoved(t *testing.T) {
	w := newWorld(t)
	w.process(1, 0, 0, "/init.scope", 1)
	w.join(40, 1000, "/system.slice/cron.service")
	w.write("proc/uptime", "0.02 0")
	w.join(42, 1000, "/system.slice/cron.service")
	book := w.bookWith(&bus{w: w})
	_, problem := book.MarkUntil(1000, 42, "test", 1000)
	must(t, problem)
	w.expect(42, "/system.slice/cron.service 6000/0 6000/0")
	uids := map[int]uint32{43: 1000, 44: 1000, 45: 0}
	for pid, priority := range map[int]int{43: ioprio.Idle, 44: 0, 45: ioprio.Idle} {
		w.join(pid, 1000, "/system.slice/cron.service")
		w.process(pid, 1, uids[pid], "/system.slice/cron.service", 5)
		w.threads[pid] = []actuate.Thread{{TID: pid, IOPrio: priority}}
	}
	w.threads[40] = []actuate.Thread{{TID: 40, IOPrio: ioprio.Idle}}
	w.end(42)
	book.Prune()
	if got := book.List(-1); len(got) != 1 || got[0].PID != 43 {
		t.Errorf("marked: %+v", got)
	}
	if ended := book.Expire(time.Unix(1000, 0)); ended != 1 || w.files() != 0 {
		t.Errorf("%d ended, %d files", ended, w.files())
	}
	w.expect(43, "/system.slice/cron.service 0/0")
	w.expect(40, "/system.slice/cron.service 6000/0")
	w.expect(45, "/system.slice/cron.service 6000/0")
}

func TestChildrenOfAnEndedProcessCanBeUnmarked(t *testing.T) {
	w, book := orphans(t, RuleOrigin+"backups", 0)
	book.Prune()
	if got := book.List(-1); len(got) != 1 || got[0].Origin != "left by rule backups" {
		t.Errorf("marked: %+v", got)
	}
	_, problem := book.Unmark(1000, 44)
	must(t, problem)
	w.expect(44, "/user 0/0")
	_, problem = book.Unmark(1000, 43)
	must(t, problem)
	w.expect(43, "/user 0/0")
}

func TestAChildAloneGoesBack(t *testing.T) {
	w, book := markedParent(t, 1000)
	_, problem := book.Unmark(1000, 43)
	must(t, problem)
	w.expect(43, "/user 0/0")
	w.expect(42, marked)
}
