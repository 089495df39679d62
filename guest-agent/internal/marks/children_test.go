// SPDX-License-Identifier: GPL-2.0-or-later

package marks

import (
	"testing"

	"idletime.org/guest-agent/internal/actuate"
	"idletime.org/guest-agent/internal/actuate/cgroup"
	"idletime.org/guest-agent/internal/actuate/ioprio"
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

func TestAChildAloneGoesBack(t *testing.T) {
	w, book := markedParent(t, 1000)
	_, problem := book.Unmark(1000, 43)
	must(t, problem)
	w.expect(43, "/user 0/0")
	w.expect(42, marked)
}
