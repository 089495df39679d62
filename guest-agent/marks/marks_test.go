// SPDX-License-Identifier: GPL-2.0-or-later

package marks

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"idletime/guest-agent/actuate"
	"idletime/guest-agent/actuate/cgroup"
	"idletime/guest-agent/actuate/dscp"
	"idletime/guest-agent/actuate/ioprio"
	"idletime/guest-agent/facts"
	"idletime/guest-agent/wire"
)

// world is a guest of files and of threads that only it knows. It implements Hands.
type world struct {
	t       *testing.T
	root    string
	threads map[int][]actuate.Thread
	packets []dscp.Group
	// spawn is called at each look at the threads of a process: things happen meanwhile.
	spawn func(pid int)
	fail  error
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, root: t.TempDir(), threads: map[int][]actuate.Thread{}}
	w.write("cgroup/cgroup.subtree_control", "")
	w.write("cgroup/user/cgroup.procs", "")
	return w
}

func (w *world) write(path, content string) {
	w.t.Helper()
	path = filepath.Join(w.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// process adds one with two threads: the leader without a priority, the other with its own.
func (w *world) process(pid, parent int, uid uint32, group string, start int) {
	folder := fmt.Sprintf("proc/%d/", pid)
	w.write(folder+"stat", fmt.Sprintf("%d (work) S %d 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0 %d 0", pid, parent, start))
	w.write(folder+"status", fmt.Sprintf("Name:\twork\nUid:\t%d\t%d\t%d\t%d\n", uid, uid, uid, uid))
	w.write(folder+"cgroup", "0::"+group+"\n")
	w.write(fmt.Sprintf("%stask/%d/children", folder, pid), "")
	w.threads[pid] = []actuate.Thread{{TID: pid}, {TID: pid + 100000, IOPrio: 2<<13 | 1}}
	if parent != 0 {
		file := fmt.Sprintf("proc/%d/task/%d/children", parent, parent)
		old, _ := os.ReadFile(filepath.Join(w.root, file))
		w.write(file, string(old)+strconv.Itoa(pid)+" ")
	}
}

func (w *world) end(pid int) {
	_ = os.RemoveAll(filepath.Join(w.root, "proc", strconv.Itoa(pid)))
	delete(w.threads, pid)
}

func (w *world) Threads(pid int) ([]actuate.Thread, error) {
	if w.spawn != nil {
		w.spawn(pid)
	}
	if len(w.threads[pid]) == 0 {
		return nil, facts.ErrGone
	}
	return append([]actuate.Thread{}, w.threads[pid]...), nil
}

func (w *world) Do(pid int, step actuate.Step) error {
	if w.fail != nil {
		return w.fail
	}
	if step.Kind == actuate.MoveTo {
		w.write(fmt.Sprintf("proc/%d/cgroup", pid), "0::"+step.Group+"\n")
		return nil
	}
	for i := range w.threads[pid] {
		thread := &w.threads[pid][i]
		if thread.TID == step.TID && step.Kind == actuate.SetIOPrio {
			thread.IOPrio = step.Value
		} else if thread.TID == step.TID {
			thread.Policy = step.Value
		}
	}
	return nil
}

func (w *world) Packets(groups []dscp.Group) error {
	w.packets = groups
	return nil
}

func (w *world) book() *Book {
	w.t.Helper()
	tree := &cgroup.Tree{Mount: filepath.Join(w.root, "cgroup")}
	book, err := New(facts.Root(w.root), w, tree, filepath.Join(w.root, "marks"), 77)
	if err != nil {
		w.t.Fatal(err)
	}
	book.Load()
	return book
}

// look describes a process: its cgroup and the priorities of its threads.
func (w *world) look(pid int) string {
	process, err := facts.Root(w.root).Process(pid)
	if err != nil {
		return "gone"
	}
	text := process.Cgroup
	for _, thread := range w.threads[pid] {
		text += fmt.Sprintf(" %x/%d", thread.IOPrio, thread.Policy)
	}
	return text
}

func (w *world) expect(pid int, want string) {
	w.t.Helper()
	if got := w.look(pid); got != want {
		w.t.Errorf("process %d: %s, want %s", pid, got, want)
	}
}

func (w *world) files() int {
	entries, _ := os.ReadDir(filepath.Join(w.root, "marks"))
	return len(entries)
}

func must(t *testing.T, problem *wire.Error) {
	t.Helper()
	if problem != nil {
		t.Fatal(problem)
	}
}

func code(problem *wire.Error) string {
	if problem == nil {
		return "done"
	}
	return problem.Code
}

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

func TestChildrenGoBackWithTheirParent(t *testing.T) {
	w := newWorld(t)
	book := w.book()
	w.process(42, 0, 0, "/user", 1)
	_, problem := book.Mark(0, 42, "test")
	must(t, problem)
	w.process(43, 42, 0, cgroup.Background, 2)
	w.threads[43] = []actuate.Thread{{TID: 43, IOPrio: ioprio.Idle}}
	w.process(44, 43, 0, cgroup.Background, 2)
	w.threads[44] = []actuate.Thread{{TID: 44, IOPrio: ioprio.Idle}}
	_, problem = book.Mark(0, 44, "a mark of its own")
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
	w := newWorld(t)
	book := w.book()
	w.process(42, 0, 1000, "/user", 1)
	_, problem := book.Mark(0, 42, "test")
	must(t, problem)
	w.process(43, 42, 1000, cgroup.Background, 2)
	w.threads[43] = []actuate.Thread{{TID: 43, IOPrio: ioprio.Idle}}
	_, problem = book.Unmark(1000, 43)
	must(t, problem)
	w.expect(43, "/user 0/0")
	w.expect(42, marked)
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
		if w.files() != 0 || book.Count() != (wire.Counts{}) || len(w.packets) != 0 {
			t.Fatalf("after round %d: %d files, %+v, packets of %v", round, w.files(), book.Count(), w.packets)
		}
	}
	for pid := 100; pid < 200; pid++ {
		w.expect(pid, fresh)
	}
}
