// SPDX-License-Identifier: GPL-2.0-or-later

package marks

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"idletime.org/guest-agent/internal/actuate"
	"idletime.org/guest-agent/internal/actuate/cgroup"
	"idletime.org/guest-agent/internal/actuate/dscp"
	"idletime.org/guest-agent/internal/actuate/ioprio"
	"idletime.org/guest-agent/internal/facts"
	"idletime.org/guest-agent/internal/wire"
)

// world is a guest of files and of threads that only it knows. It implements Hands.
type world struct {
	t       *testing.T
	root    string
	threads map[int][]actuate.Thread
	packets []dscp.Group
	// packetsFail is the answer of Packets; tables is what nftables has, and written how often a table was written.
	packetsFail error
	tables      map[string]bool
	written     int
	// lifted is what was asked last, and liftFails the answer.
	lifted    bool
	liftFails error
	// spawn is called at each look at the threads of a process: things happen meanwhile.
	spawn func(pid int)
	// moving is called before a process is moved.
	moving func(pid int)
	fail   error
	// failOnly is the kind of step that fails, "" for all.
	failOnly actuate.Kind
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, root: t.TempDir(), threads: map[int][]actuate.Thread{}, tables: map[string]bool{}}
	w.write("cgroup/cgroup.subtree_control", "")
	w.write("cgroup/user/cgroup.procs", "")
	w.namespace("self", "cgroup", 1)
	w.namespace("self", "pid", 1)
	return w
}

// namespace says in which namespace of a kind a process is.
func (w *world) namespace(pid, kind string, number int) {
	w.t.Helper()
	file := filepath.Join(w.root, "proc", pid, "ns", kind)
	_ = os.Remove(file)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Symlink(fmt.Sprintf("%s:[%d]", kind, number), file); err != nil {
		w.t.Fatal(err)
	}
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
	w.namespace(strconv.Itoa(pid), "cgroup", 1)
	w.namespace(strconv.Itoa(pid), "pid", 1)
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
	if w.fail != nil && (w.failOnly == "" || w.failOnly == step.Kind) {
		return w.fail
	}
	if step.Kind == actuate.MoveTo {
		if w.moving != nil {
			w.moving(pid)
		}
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

func (w *world) Idle(pid int) bool {
	return len(w.threads[pid]) == 0 || ioprio.Is(w.threads[pid][0].IOPrio)
}

func (w *world) Packets(groups []dscp.Group) error {
	if w.packetsFail != nil {
		return w.packetsFail
	}
	w.packets, w.tables[dscp.Table] = groups, len(groups) > 0
	w.written++
	return nil
}

func (w *world) Inherit(on bool) error {
	w.tables[dscp.InheritTable] = on
	w.written++
	return nil
}

func (w *world) HasTable(name string) bool { return w.tables[name] }

func (w *world) Lift(on bool) error {
	w.lifted = on
	return w.liftFails
}

func (w *world) book() *Book { return w.bookWith(nil) }

// bookWith is a book with systemd, or without.
func (w *world) bookWith(units Units) *Book {
	w.t.Helper()
	tree := &cgroup.Tree{Mount: filepath.Join(w.root, "cgroup")}
	book, err := New(facts.Root(w.root), w, tree, filepath.Join(w.root, "marks"), 77)
	if err != nil {
		w.t.Fatal(err)
	}
	book.Units = units
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

// away has files and folders that cannot be looked at, until what it returns is called: each is a link to itself.
func (w *world) away(paths ...string) (again func()) {
	for _, path := range paths {
		path = filepath.Join(w.root, path)
		if err := errors.Join(os.Rename(path, path+".away"), os.Symlink(path, path)); err != nil {
			w.t.Fatal(err)
		}
	}
	return func() {
		for _, path := range paths {
			path = filepath.Join(w.root, path)
			if err := errors.Join(os.Remove(path), os.Rename(path+".away", path)); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}
