// SPDX-License-Identifier: GPL-2.0-or-later

package marks

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"idletime.org/guest-agent/internal/actuate/cgroup"
	"idletime.org/guest-agent/internal/actuate/systemd"
	"idletime.org/guest-agent/internal/facts"
	"idletime.org/guest-agent/internal/systemdtest"
	"idletime.org/guest-agent/internal/wire"
)

// TestSystemd runs the tests below on a real systemd.
func TestSystemd(t *testing.T) { systemdtest.Run(t, "^TestInside") }

// inside is a book on a real systemd and the running kernel.
type inside struct {
	t    *testing.T
	book *Book
	root facts.Root
}

func newInside(t *testing.T) *inside {
	systemdtest.Inside(t)
	tree := &cgroup.Tree{Mount: "/sys/fs/cgroup"}
	hands := Kernel{Root: "/", Tree: tree, Units: systemd.New()}
	book, err := New("/", hands, tree, filepath.Join(t.TempDir(), "marks"), os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	book.Units = hands.Units
	book.Load()
	return &inside{t, book, "/"}
}

// do runs a program that must succeed; gives its output.
func (i *inside) do(words ...string) string {
	i.t.Helper()
	output, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		i.t.Fatalf("%q: %v: %s", words, err, output)
	}
	return strings.TrimSpace(string(output))
}

// service starts a service of some sleeping processes; gives their pids.
func (i *inside) service(unit string, count int, properties ...string) []int {
	i.t.Helper()
	script := strings.Repeat("sleep 1000 & ", count) + "exec sleep 1000"
	words := append([]string{"systemd-run", "--quiet", "--unit", unit}, properties...)
	i.do(append(words, "sh", "-c", script)...)
	i.t.Cleanup(func() { _ = exec.Command("systemctl", "stop", unit).Run() })
	return i.processes("/system.slice/"+unit, count+1)
}

// processes waits until a cgroup has so many processes that sleep; gives their pids.
func (i *inside) processes(group string, count int) (pids []int) {
	i.t.Helper()
	systemdtest.Eventually(i.t, fmt.Sprintf("%s has %d processes", group, count), func() bool {
		found, err := i.book.Tree.Processes(group)
		for _, pid := range found {
			process, wrong := i.root.Process(pid)
			if wrong != nil || process.Comm != "sleep" {
				return false
			}
		}
		pids = found
		return err == nil && len(found) == count
	})
	return pids
}

// session starts the scope of a login session, with the properties that logind gives it, with sleeping processes of user 1000.
func (i *inside) session(name string, count int) []int {
	i.t.Helper()
	for range count {
		command := exec.Command("systemd-run", "--quiet", "--scope", "--unit", name, "--slice", "user-1000.slice",
			"-p", "TasksMax=infinity", "--uid", "1000", "sleep", "1000")
		if pids, _ := i.book.Tree.Processes(userSlice + name); len(pids) > 0 {
			command = exec.Command("setpriv", "--reuid", "1000", "--clear-groups", "sleep", "1000")
		}
		if err := command.Start(); err != nil {
			i.t.Fatal(err)
		}
		i.t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
		pid := command.Process.Pid
		systemdtest.Eventually(i.t, "it sleeps", func() bool { process, err := i.root.Process(pid); return err == nil && process.Comm == "sleep" })
		if err := i.book.Tree.Move(pid, userSlice+name); err != nil {
			i.t.Fatal(err)
		}
	}
	return i.processes(userSlice+name, count)
}

func (i *inside) mark(pid int) wire.Marked {
	i.t.Helper()
	done, problem := i.book.Mark(1000, pid, "test")
	if problem != nil && problem.Code == wire.CodeNotPermitted {
		done, problem = i.book.Mark(0, pid, "test")
	}
	must(i.t, problem)
	return done
}

func (i *inside) unmark(pid int) {
	i.t.Helper()
	_, problem := i.book.Unmark(0, pid)
	must(i.t, problem)
}

func (i *inside) expectGroup(pid int, want string) {
	i.t.Helper()
	if got := i.root.Cgroup(pid); got != want {
		i.t.Errorf("process %d is in %q, not %s", pid, got, want)
	}
}

// expectWeight asks systemd itself.
func (i *inside) expectWeight(unit, want string) {
	i.t.Helper()
	if got := i.do("systemctl", "show", "--value", "-p", "CPUWeight", unit); got != want {
		i.t.Errorf("%s has the weight %q, not %s", unit, got, want)
	}
}

// expectIdle looks at what the kernel has, where its controllers are cgroup v2's: in a guest, not on every machine of tests.
func (i *inside) expectIdle(group, want string) {
	i.t.Helper()
	controllers, err := os.ReadFile(filepath.Join(i.book.Tree.Mount, "cgroup.controllers"))
	if err != nil || !strings.Contains(string(controllers), "cpu ") {
		i.t.Logf("cpu.idle of %s is not looked at: the controllers are %q", group, controllers)
		return
	}
	got, err := os.ReadFile(filepath.Join(i.book.Tree.Mount, group, "cpu.idle"))
	if errors.Is(err, fs.ErrNotExist) {
		// Nobody has a weight there any more, and systemd has taken the controller away.
		got, err = []byte("0"), nil
	}
	if err != nil || strings.TrimSpace(string(got)) != want {
		i.t.Errorf("cpu.idle of %s is %q (%v), not %s", group, got, err, want)
	}
}

func alive(pid int) bool {
	_, err := facts.Root("/").Process(pid)
	return err == nil
}

const (
	unset      = "[not set]"
	userSlice  = "/user.slice/user-1000.slice/"
	backupPath = "/system.slice/backup.service"
)

// TestInsideServicesKeepTheirProcesses: what is marked in a service stays there, and the service still is stopped whole. When
// all of it is marked it gives way, and not a moment longer.
func TestInsideServicesKeepTheirProcesses(t *testing.T) {
	i := newInside(t)
	pids := i.service("backup.service", 1)
	done := i.mark(pids[0])
	i.expectGroup(pids[0], backupPath)
	i.expectWeight("backup.service", unset)
	if len(done.Lacks) == 0 || !strings.Contains(done.Lacks[0], "idletime mark --unit backup.service") {
		t.Errorf("it lacks %q", done.Lacks)
	}
	i.mark(pids[1])
	i.expectWeight("backup.service", "idle")
	i.expectIdle(backupPath, "1")
	i.unmark(pids[0])
	i.expectWeight("backup.service", unset)
	i.expectIdle(backupPath, "0")
	i.mark(pids[0])
	i.do("systemctl", "daemon-reload")
	i.expectWeight("backup.service", "idle")
	for _, pid := range pids {
		i.expectGroup(pid, backupPath)
	}
	i.do("systemctl", "stop", "backup.service")
	if alive(pids[0]) || alive(pids[1]) {
		t.Error("a process outlived its service")
	}
	i.book.Prune()
	if len(i.book.groups)+len(i.book.records) != 0 {
		t.Errorf("%d groups and %d records are left", len(i.book.groups), len(i.book.records))
	}
}

// TestInsideRulesMakeWholeUnitsGiveWay: after a scan, not process by process.
func TestInsideRulesMakeWholeUnitsGiveWay(t *testing.T) {
	i := newInside(t)
	pids := i.service("backup.service", 2)
	for _, pid := range pids {
		_, problem := i.book.MarkByRule(pid, "backups")
		must(t, problem)
	}
	i.expectWeight("backup.service", unset)
	i.book.Settle()
	i.expectWeight("backup.service", "idle")
	if list := i.book.List(10); len(list) != 3 || !list[0].Whole {
		t.Errorf("%+v", list)
	}
	for _, pid := range pids {
		i.unmark(pid)
	}
	i.expectWeight("backup.service", unset)
}

// TestInsideUnits: a unit that is marked gets back what it had, also one that has ended meanwhile.
func TestInsideUnits(t *testing.T) {
	i := newInside(t)
	i.service("backup.service", 0, "-p", "CPUWeight=50")
	path, problem := i.book.Resolve(0, wire.Target{Unit: "backup"})
	must(t, problem)
	_, problem = i.book.MarkGroup(path)
	must(t, problem)
	i.expectWeight("backup.service", "idle")
	_, problem = i.book.MarkGroup(path)
	must(t, problem)
	_, problem = i.book.UnmarkGroup(path)
	must(t, problem)
	i.expectWeight("backup.service", "50")
	if _, problem := i.book.Resolve(0, wire.Target{Unit: "gone"}); code(problem) != "not-found" {
		t.Errorf("%v", problem)
	}

	// A unit with a file: it can be started again.
	file := "/etc/systemd/system/nightly.service"
	if err := os.WriteFile(file, []byte("[Service]\nExecStart=/bin/sleep 1000\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	i.do("systemctl", "daemon-reload")
	i.do("systemctl", "start", "nightly")
	path, problem = i.book.Resolve(0, wire.Target{Unit: "nightly"})
	must(t, problem)
	_, problem = i.book.MarkGroup(path)
	must(t, problem)
	i.expectWeight("nightly", "idle")
	i.do("systemctl", "stop", "nightly")
	i.book.Prune()
	i.do("systemctl", "start", "nightly")
	i.expectWeight("nightly", unset)
	i.do("systemctl", "stop", "nightly")
}

// TestInsideSessions: a process of a login session goes to a scope in the slice of its user, and back.
func TestInsideSessions(t *testing.T) {
	i := newInside(t)
	pids := i.session("session-1.scope", 2)
	i.mark(pids[0])
	i.expectGroup(pids[0], userSlice+"idletime-session-1.scope")
	i.expectGroup(pids[1], userSlice+"session-1.scope")
	i.expectWeight("idletime-session-1.scope", "idle")
	i.expectIdle(userSlice+"idletime-session-1.scope", "1")
	i.mark(pids[1])
	i.expectGroup(pids[1], userSlice+"idletime-session-1.scope")
	// The session's scope ends when it becomes empty, as one does after a logout.
	systemdtest.Eventually(t, "the session's scope ends", func() bool { return !i.book.Tree.Has(userSlice + "session-1.scope") })
	i.unmark(pids[0])
	i.expectGroup(pids[0], userSlice+fmt.Sprintf("unmarked-%d.scope", pids[0]))
	i.expectWeight(fmt.Sprintf("unmarked-%d.scope", pids[0]), unset)
	i.expectGroup(pids[1], userSlice+"idletime-session-1.scope")
}

func TestInsideSessionsAndBack(t *testing.T) {
	i := newInside(t)
	pids := i.session("session-2.scope", 2)
	i.mark(pids[0])
	i.unmark(pids[0])
	descriptors := openFiles(t)
	for range 20 {
		i.mark(pids[0])
		i.expectGroup(pids[0], userSlice+"idletime-session-2.scope")
		i.unmark(pids[0])
		i.expectGroup(pids[0], userSlice+"session-2.scope")
	}
	if now := openFiles(t); now > descriptors {
		t.Errorf("%d files are open, before there were %d", now, descriptors)
	}
	if i.book.Tree.Has(cgroup.Slice) {
		t.Errorf("%s was made beside systemd", cgroup.Slice)
	}
}

// TestInsideWhoEndsASessionEndsItsMarkedProcesses, as with KillUserProcesses=yes.
func TestInsideWhoEndsASessionEndsItsMarkedProcesses(t *testing.T) {
	i := newInside(t)
	pids := i.session("session-3.scope", 2)
	i.mark(pids[0])
	i.do("systemctl", "stop", "session-3.scope")
	systemdtest.Eventually(t, "both have ended", func() bool { return !alive(pids[0]) && !alive(pids[1]) })
}
