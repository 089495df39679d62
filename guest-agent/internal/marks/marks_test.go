// SPDX-License-Identifier: GPL-2.0-or-later

package marks

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"idletime.org/guest-agent/internal/actuate"
	"idletime.org/guest-agent/internal/actuate/cgroup"
	"idletime.org/guest-agent/internal/actuate/ioprio"
	"idletime.org/guest-agent/internal/wire"
)

const (
	fresh  = "/user 0/0 4001/0"
	marked = "/idletime.slice/background 6000/0 6000/0"
)

func TestThereAndBack(t *testing.T) {
	w := newWorld(t)
	book := w.book()
	w.process(42, 0, 1000, "/user", 1)
	done, problem := book.Mark(1000, 42, "test")
	must(t, problem)
	w.expect(42, marked)
	if done.Threads != 2 || len(w.packets) != 1 || w.packets[0].Path != cgroup.Background || w.files() != 1 {
		t.Errorf("%+v, packets of %v, %d files", done, w.packets, w.files())
	}
	_, problem = book.Unmark(1000, 42)
	must(t, problem)
	w.expect(42, fresh)
	if len(w.packets) != 1 {
		t.Errorf("the rule for packets did not stay for the next mark: %v", w.packets)
	}
	book.Prune()
	if len(w.packets) != 0 || w.files() != 0 || book.Count() != (wire.Counts{}) {
		t.Errorf("packets of %v, %d files, %+v are left", w.packets, w.files(), book.Count())
	}
}

func TestSchedIdle(t *testing.T) {
	w := newWorld(t)
	book := w.book()
	book.SchedIdle = true
	w.process(42, 0, 0, "/user", 1)
	_, problem := book.Mark(0, 42, "test")
	must(t, problem)
	w.expect(42, "/idletime.slice/background 6000/5 6000/5")
	_, problem = book.Unmark(0, 42)
	must(t, problem)
	w.expect(42, fresh)
}

func TestThreadsThatComeMeanwhile(t *testing.T) {
	w := newWorld(t)
	book := w.book()
	w.process(42, 0, 0, "/user", 1)
	looks := 0
	w.spawn = func(pid int) {
		if looks++; looks <= 3 {
			w.threads[pid] = append(w.threads[pid], actuate.Thread{TID: 200000 + looks, IOPrio: 2 << 13})
		}
	}
	done, problem := book.Mark(0, 42, "test")
	must(t, problem)
	if done.Threads != 5 {
		t.Errorf("%d threads, not 5", done.Threads)
	}
	for _, thread := range w.threads[42] {
		if !ioprio.Is(thread.IOPrio) {
			t.Errorf("thread %d was missed", thread.TID)
		}
	}
}

func TestPrivileges(t *testing.T) {
	w := newWorld(t)
	book := w.book()
	w.process(1, 0, 0, "/", 1)
	w.process(42, 0, 1000, "/user", 1)
	w.process(43, 0, 0, "/user", 1)
	w.process(77, 0, 0, "/user", 1)
	w.write("proc/44/stat", "44 (setuid) S 1 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0 1 0")
	w.write("proc/44/status", "Name:\tx\nUid:\t1000\t0\t0\t0\n")
	w.threads[44] = []actuate.Thread{{TID: 44}}
	for _, test := range []struct {
		uid  uint32
		pid  int
		want string
	}{
		{1000, 42, "done"}, {0, 42, "done"}, {1001, 42, "not-permitted"}, {1000, 43, "not-permitted"},
		{1000, 44, "not-permitted"}, {0, 43, "done"}, {0, 1, "protected"}, {1000, 1, "protected"}, {0, 77, "protected"},
		{0, 99, "not-found"},
	} {
		if _, problem := book.Mark(test.uid, test.pid, "test"); code(problem) != test.want {
			t.Errorf("uid %d marks %d: %s (%v), not %s", test.uid, test.pid, code(problem), problem, test.want)
		}
	}
	for _, test := range []struct {
		uid  uint32
		pid  int
		want string
	}{{1001, 42, "not-permitted"}, {1000, 43, "not-permitted"}, {1000, 42, "done"}, {1000, 42, "not-marked"}, {0, 43, "done"}} {
		if _, problem := book.Unmark(test.uid, test.pid); code(problem) != test.want {
			t.Errorf("uid %d unmarks %d: %s, not %s", test.uid, test.pid, code(problem), test.want)
		}
	}
	for _, target := range []wire.Target{{Cgroup: "/user"}, {Unit: "x"}} {
		if _, problem := book.Resolve(1000, target); code(problem) != "not-permitted" {
			t.Errorf("uid 1000 resolves %+v: %v", target, problem)
		}
	}
}

// TestUsersKeepTheirLimits: nobody gets out of a limit by asking to be background.
func TestUsersKeepTheirLimits(t *testing.T) {
	w := newWorld(t)
	book := w.book()
	w.write("cgroup/user/pids.max", "50\n")
	w.process(42, 0, 1000, "/user", 1)
	done, problem := book.Mark(1000, 42, "test")
	must(t, problem)
	w.expect(42, "/user 6000/0 6000/0")
	if len(done.Lacks) == 0 || !strings.Contains(done.Lacks[0], "pids.max of /user") {
		t.Errorf("it lacks %q", done.Lacks)
	}
	_, problem = book.Mark(0, 42, "test")
	must(t, problem)
	w.expect(42, marked)
	_, problem = book.Unmark(0, 42)
	must(t, problem)
	w.expect(42, fresh)
}

func TestANewAgentCanUndo(t *testing.T) {
	w := newWorld(t)
	first := w.book()
	for pid, start := range map[int]int{42: 1, 43: 1, 44: 1} {
		w.process(pid, 0, 0, "/user", start)
		_, problem := first.Mark(0, pid, "test")
		must(t, problem)
	}
	w.end(43)
	w.process(44, 0, 0, "/user", 2) // the number is another process's now
	w.write("marks/process-99.json", "{")
	second := w.book()
	if got := second.Count().Processes; got != 1 {
		t.Errorf("%d marks are known, not 1", got)
	}
	_, problem := second.Unmark(0, 42)
	must(t, problem)
	w.expect(42, fresh)
	w.expect(44, fresh)
	if w.files() != 0 {
		t.Errorf("%d files are left", w.files())
	}
}

func TestEndedProcessesAreForgotten(t *testing.T) {
	w := newWorld(t)
	book := w.book()
	w.process(42, 0, 0, "/user", 1)
	_, problem := book.Mark(0, 42, "test")
	must(t, problem)
	w.end(42)
	if got := book.Prune(); got != 1 || w.files() != 0 || len(w.packets) != 0 {
		t.Errorf("%d forgotten, %d files and packets of %v left", got, w.files(), w.packets)
	}
}

func TestAFailureLeavesNothing(t *testing.T) {
	w := newWorld(t)
	book := w.book()
	w.process(42, 0, 0, "/user", 1)
	w.fail = fmt.Errorf("no")
	if _, problem := book.Mark(0, 42, "test"); code(problem) != "failed" {
		t.Errorf("%v", problem)
	}
	if w.files() != 0 || book.Count().Processes != 0 {
		t.Errorf("%d files, %+v", w.files(), book.Count())
	}
}

// TestNumbersAreUsedAgain: the process ends while it is being marked, and another one gets its number.
func TestNumbersAreUsedAgain(t *testing.T) {
	w := newWorld(t)
	book := w.book()
	w.process(42, 0, 1000, "/user", 1)
	looks := 0
	w.spawn = func(pid int) {
		if looks++; looks == 2 {
			w.process(42, 0, 0, "/user", 2)
			w.threads[42] = []actuate.Thread{{TID: 42, IOPrio: ioprio.Idle}}
		}
	}
	if _, problem := book.Mark(1000, 42, "test"); code(problem) != "not-found" {
		t.Errorf("%v", problem)
	}
	if got := book.Count().Processes; got != 0 {
		t.Errorf("%d marks", got)
	}
}

// TestANumberThatIsUsedAgainIsNotTouched: the process ended before anything was done to it.
func TestANumberThatIsUsedAgainIsNotTouched(t *testing.T) {
	w := newWorld(t)
	book := w.book()
	w.process(42, 0, 1000, "/user", 1)
	w.spawn = func(pid int) {
		w.spawn = nil
		w.process(42, 0, 0, "/other", 2)
	}
	w.moving = func(pid int) { t.Errorf("process %d is moved", pid) }
	if _, problem := book.Mark(1000, 42, "test"); code(problem) != "not-found" {
		t.Errorf("%v", problem)
	}
	w.expect(42, "/other 0/0 4001/0")
}

// TestWhoGetsTheNumberMeanwhileGoesBack: to where its parent is, and not to where the user has the other one.
func TestWhoGetsTheNumberMeanwhileGoesBack(t *testing.T) {
	w := newWorld(t)
	book := w.book()
	w.process(42, 0, 1000, "/user", 1)
	w.process(90, 0, 0, "/other", 1)
	w.moving = func(pid int) {
		w.moving = nil
		w.process(42, 90, 0, "/other", 2)
	}
	if _, problem := book.Mark(1000, 42, "test"); code(problem) != "not-found" {
		t.Errorf("%v", problem)
	}
	w.expect(42, "/other 0/0 4001/0")
	if got := book.Count().Processes; got != 0 || w.files() != 0 {
		t.Errorf("%d marks, %d files", got, w.files())
	}
}

// TestAThousandLeaveNothing: the ten thousand are marked for real, in a guest (kernel_test.go).
func TestAThousandLeaveNothing(t *testing.T) {
	w := newWorld(t)
	book := w.book()
	for pid := 100; pid < 200; pid++ {
		w.process(pid, 0, 0, "/user", 1)
	}
	for round := range 10 {
		for pid := 100; pid < 200; pid++ {
			_, problem := book.Mark(0, pid, "test")
			must(t, problem)
		}
		for pid := 100; pid < 200; pid++ {
			_, problem := book.Unmark(0, pid)
			must(t, problem)
		}
		book.Prune()
		if w.files() != 0 || book.Count() != (wire.Counts{}) || len(w.packets) != 0 {
			t.Fatalf("after round %d: %d files, %+v, packets of %v", round, w.files(), book.Count(), w.packets)
		}
	}
	for pid := 100; pid < 200; pid++ {
		w.expect(pid, fresh)
	}
}

func TestAMarkEnds(t *testing.T) {
	w := newWorld(t)
	book := w.book()
	w.process(42, 0, 1000, "/user", 1)
	w.process(43, 42, 1000, "/user", 2)
	for _, pid := range []int{42, 43} {
		_, problem := book.MarkUntil(1000, pid, "test", 1000)
		must(t, problem)
	}
	// Marked again, it is for good.
	_, problem := book.Mark(1000, 43, "test")
	must(t, problem)
	book = w.book()
	if ended := book.Expire(time.Unix(999, 0)); ended != 0 {
		t.Errorf("%d ended before their time", ended)
	}
	if ended := book.Expire(time.Unix(1000, 0)); ended != 1 {
		t.Errorf("%d ended, not 1", ended)
	}
	w.expect(42, fresh)
	w.expect(43, marked)
	// Of a process that has ended there is nothing to take back.
	_, problem = book.MarkUntil(1000, 43, "test", 2000)
	must(t, problem)
	w.end(43)
	if ended := book.Expire(time.Unix(2000, 0)); ended != 0 {
		t.Errorf("%d ended, not 0", ended)
	}
}

func TestByteQueueLimitsAreLiftedWhilePacketsAreMarked(t *testing.T) {
	w := newWorld(t)
	w.process(42, 1, 1000, "/user", 5)
	book := w.book()
	expect := func(when string, want bool) {
		t.Helper()
		if w.lifted != want {
			t.Errorf("%s: lifted is %v", when, w.lifted)
		}
	}
	expect("nothing is marked", false)
	if _, problem := book.Mark(0, 42, "test"); problem != nil {
		t.Fatal(problem)
	}
	expect("marked", true)
	w.lifted = false
	book.Prune()
	expect("a NIC that came since", true)
	if _, problem := book.Unmark(0, 42); problem != nil {
		t.Fatal(problem)
	}
	book.Prune()
	expect("unmarked", false)
	book.Inherit = true
	book.Prune()
	expect("answers inherit", true)
	w.liftFails = errors.New("limit_min: read-only file system")
	book.Prune()
	if lacks := strings.Join(book.Lacks(), "\n"); !strings.Contains(lacks, "limit_min: read-only file system") {
		t.Errorf("status does not say what was not lifted: %v", lacks)
	}
	w.liftFails = nil
	if err := book.Close(); err != nil {
		t.Fatal(err)
	}
	expect("closed", false)
}

// TestAContainerKeepsItsProcesses: in another cgroup the filter of its devices would not hold. Root may move one all the same.
func TestAContainerKeepsItsProcesses(t *testing.T) {
	for _, kind := range []string{"cgroup", "pid"} {
		w := newWorld(t)
		book := w.book()
		for _, pid := range []string{"42", "43"} {
			number, _ := strconv.Atoi(pid)
			w.process(number, 0, 1000, "/user", 1)
			w.namespace(pid, kind, 2)
		}
		byUser, problem := book.Mark(1000, 42, "test")
		must(t, problem)
		byRule, problem := book.MarkByRule(43, "test")
		must(t, problem)
		for pid, done := range map[int]wire.Marked{42: byUser, 43: byRule} {
			w.expect(pid, "/user 6000/0 6000/0")
			if len(done.Lacks) == 0 || !strings.Contains(done.Lacks[0], "it is in a container; root may mark its cgroup") {
				t.Errorf("process %d lacks %q", pid, done.Lacks)
			}
		}
		_, problem = book.Mark(0, 42, "test")
		must(t, problem)
		w.expect(42, marked)
	}
}

// TestWhatIsIdleByItselfIsNotMarked: who wants it back is told how.
func TestWhatIsIdleByItselfIsNotMarked(t *testing.T) {
	w := newWorld(t)
	book := w.book()
	w.process(42, 0, 1000, "/user", 1)
	const remedy = "it has the idle priority by itself: ionice -c 0 -p 42"
	for priority, want := range map[int]bool{ioprio.None: false, ioprio.Idle: true} {
		w.threads[42][0].IOPrio = priority
		_, problem := book.Unmark(1000, 42)
		if code(problem) != wire.CodeNotMarked || strings.Contains(problem.Message, remedy) != want {
			t.Errorf("priority %d: %v", priority, problem)
		}
	}
}
