// SPDX-License-Identifier: GPL-2.0-or-later

package marks

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"idletime.org/guest-agent/internal/actuate"
	"idletime.org/guest-agent/internal/actuate/cgroup"
	"idletime.org/guest-agent/internal/actuate/systemd"
	"idletime.org/guest-agent/internal/wire"
)

// bus is a systemd of a world: what it is asked to do, it writes down. The real one is in systemd_test.go.
type bus struct {
	w    *world
	told []string
	fail error
	// during is called while a unit is made to give way.
	during func()
}

func (b *bus) Move(int, string) error { return errors.New("the world moves processes itself") }

func (b *bus) Quiet(unit string, keep func(cgroup.Attributes) error) error {
	if err := keep(cgroup.Attributes{"CPUWeight": "7"}); err != nil {
		return err
	}
	b.told = append(b.told, "quiet "+unit)
	if b.during != nil {
		b.during()
	}
	return b.fail
}

func (b *bus) Restore(unit string, before cgroup.Attributes) error {
	b.told = append(b.told, "restore "+unit+" "+before["CPUWeight"])
	return b.fail
}

func (b *bus) ControlGroup(unit string) (string, error) {
	if b.fail != nil {
		return "", b.fail
	}
	if group := path.Join("/system.slice", unit); (cgroup.Tree{Mount: filepath.Join(b.w.root, "cgroup")}).Has(group) {
		return group, nil
	}
	return "", fmt.Errorf("unit %s: %w", unit, systemd.ErrNoUnit)
}

func (b *bus) expect(want ...string) {
	b.w.t.Helper()
	if got := strings.Join(b.told, "; "); got != strings.Join(want, "; ") {
		b.w.t.Errorf("systemd was told %q, not %q", got, want)
	}
	b.told = nil
}

// join puts a new process into a cgroup, as its file says.
func (w *world) join(pid int, uid uint32, group string) {
	w.process(pid, 1, uid, group, 1)
	old, _ := os.ReadFile(filepath.Join(w.root, "cgroup", group, "cgroup.procs"))
	w.write("cgroup"+group+"/cgroup.procs", string(old)+strconv.Itoa(pid)+"\n")
}

const session = "/user.slice/user-1000.slice/session-1.scope"

// withSystemd is a world with a service of two processes and a login session of one.
func withSystemd(t *testing.T) (*world, *bus, *Book) {
	w := newWorld(t)
	w.process(1, 0, 0, "/init.scope", 1)
	w.join(42, 1000, "/system.slice/a.service")
	w.join(43, 0, "/system.slice/a.service")
	w.join(50, 1000, session)
	units := &bus{w: w}
	return w, units, w.bookWith(units)
}

func TestAUnitGivesWayWhenAllOfItIsMarked(t *testing.T) {
	w, units, book := withSystemd(t)
	done, problem := book.Mark(1000, 42, "test")
	must(t, problem)
	w.expect(42, "/system.slice/a.service 6000/0 6000/0")
	units.expect()
	if len(done.Lacks) != 1 || !strings.Contains(done.Lacks[0], "a.service, of which not all is marked") {
		t.Errorf("it lacks %q", done.Lacks)
	}
	_, problem = book.Mark(0, 43, "test")
	must(t, problem)
	units.expect("quiet a.service")
	if len(w.packets) != 1 || w.packets[0].Path != "/system.slice/a.service" || book.Count() != (wire.Counts{Processes: 2}) {
		t.Errorf("packets of %v, %+v", w.packets, book.Count())
	}
	if _, problem := book.UnmarkGroup("/system.slice/a.service"); code(problem) != "not-marked" {
		t.Errorf("%v", problem)
	}
	_, problem = book.Unmark(1000, 42)
	must(t, problem)
	units.expect("restore a.service 7")
}

// TestAnAgentIsKilledWhileAUnitIsMadeToGiveWay: the next one knows what it had.
func TestAnAgentIsKilledWhileAUnitIsMadeToGiveWay(t *testing.T) {
	w, units, book := withSystemd(t)
	w.write("cgroup/system.slice/a.service/io.prio.class", "no-change\n")
	const path = "/system.slice/a.service"
	units.during = func() {
		units.during = nil
		_, problem := w.bookWith(units).UnmarkGroup(path)
		must(t, problem)
	}
	_, problem := book.MarkGroup(path)
	must(t, problem)
	units.expect("quiet a.service", "restore a.service 7")
	units.fail = errors.New("systemd is busy")
	if _, problem := w.bookWith(units).MarkGroup(path); code(problem) != "failed" || w.files() != 2 {
		t.Errorf("%v, %d files", problem, w.files())
	}
}

// TestAUnitThatGetsAnotherProcessGivesWayNoMore, and one whose process was idle by its own wish does not when nobody marks it.
func TestAUnitThatGetsAnotherProcessGivesWayNoMore(t *testing.T) {
	w, units, book := withSystemd(t)
	for _, pid := range []int{42, 43} {
		_, problem := book.MarkByRule(pid, "a")
		must(t, problem)
	}
	units.expect()
	book.Settle()
	units.expect("quiet a.service")
	w.join(44, 0, "/system.slice/a.service")
	book.Settle()
	units.expect("restore a.service 7")
	w.threads[44][0].IOPrio = 3 << 13
	book.Settle()
	units.expect("quiet a.service")
	for _, pid := range []int{42, 43} {
		w.threads[pid][0].IOPrio = 3 << 13
		_, problem := book.Unmark(0, pid)
		must(t, problem)
	}
	units.expect("restore a.service 7")
	book.Settle()
	units.expect()
}

func TestAMarkedUnitIsSystemds(t *testing.T) {
	w, units, book := withSystemd(t)
	w.write("cgroup/user/1000/a.service/cgroup.procs", "")
	path, problem := book.Resolve(0, wire.Target{Unit: "a"})
	must(t, problem)
	_, problem = book.MarkGroup(path)
	must(t, problem)
	units.expect("quiet a.service")
	// The next agent knows what the unit had; when the unit has ended it gets that back, for its next start.
	if err := os.RemoveAll(filepath.Join(w.root, "cgroup/system.slice/a.service")); err != nil {
		t.Fatal(err)
	}
	w.bookWith(units).Prune()
	units.expect("restore a.service 7")
	if _, problem := book.Resolve(0, wire.Target{Unit: "gone"}); code(problem) != "not-found" {
		t.Errorf("%v", problem)
	}
	units.fail = errors.New("no")
	if _, problem := book.Resolve(0, wire.Target{Unit: "a"}); code(problem) != "failed" {
		t.Errorf("%v", problem)
	}
	if _, problem := book.MarkGroup(session); code(problem) != "failed" {
		t.Errorf("%v", problem)
	}
}

// TestTheWayBackIsNotSystemds: it takes processes into scopes of ours, and not back into what it made itself.
func TestTheWayBackIsNotSystemds(t *testing.T) {
	w, units, book := withSystemd(t)
	hands := Kernel{Root: book.Root, Tree: book.Tree, Units: units}
	for _, group := range []string{session, "/system.slice/a.service"} {
		if err := hands.Do(os.Getpid(), actuate.Step{Kind: actuate.MoveTo, Group: group}); err != nil {
			t.Errorf("%s: %v", group, err)
		}
	}
	for _, group := range []string{systemd.Scope(session), systemd.Former(session, 50)} {
		w.write("cgroup"+group+"/cgroup.procs", "")
		if err := hands.Do(os.Getpid(), actuate.Step{Kind: actuate.MoveTo, Group: group}); err == nil {
			t.Errorf("%s: systemd is not asked", group)
		}
	}
}

func TestSessionsKeepTheLimitsOfTheirSlice(t *testing.T) {
	w, units, book := withSystemd(t)
	w.write("cgroup/user.slice/user-1000.slice/pids.max", "50\n")
	_, problem := book.Mark(0, 50, "test")
	must(t, problem)
	w.expect(50, "/user.slice/user-1000.slice/idletime-session-1.scope 6000/0 6000/0")
	_, problem = book.Unmark(1000, 50)
	must(t, problem)
	w.expect(50, session+" 0/0 4001/0")
	w.write("cgroup"+session+"/memory.max", "1\n")
	w.join(51, 1000, session)
	done, problem := book.Mark(0, 50, "test")
	must(t, problem)
	w.expect(50, session+" 6000/0 6000/0")
	if !strings.Contains(done.Lacks[0], "memory.max of "+session) {
		t.Errorf("it lacks %q", done.Lacks)
	}
	units.expect()
	// All of it can give way where it is.
	done, problem = book.Mark(1000, 51, "test")
	must(t, problem)
	units.expect("quiet session-1.scope")
	if len(done.Lacks) != 3 || strings.Contains(done.Lacks[0], "51") {
		t.Errorf("it lacks %q", done.Lacks)
	}
}

// TestWhatSystemdDoesNotMoveIsMarkedAllTheSame.
func TestWhatSystemdDoesNotMoveIsMarkedAllTheSame(t *testing.T) {
	w, _, book := withSystemd(t)
	w.fail = errors.New("systemd does not answer")
	w.failOnly = "cgroup"
	done, problem := book.Mark(1000, 50, "test")
	must(t, problem)
	w.expect(50, session+" 6000/0 6000/0")
	if !strings.Contains(strings.Join(done.Lacks, "; "), "are not moved: systemd does not answer") {
		t.Errorf("it lacks %q", done.Lacks)
	}
}

// TestWhatSystemdHasNotGivenBackIsTriedAgain: a unit does not stay idle because systemd did not answer once.
func TestWhatSystemdHasNotGivenBackIsTriedAgain(t *testing.T) {
	w, units, book := withSystemd(t)
	_, problem := book.MarkGroup("/system.slice/a.service")
	must(t, problem)
	units.fail = errors.New("systemd does not answer")
	if _, problem := book.UnmarkGroup("/system.slice/a.service"); code(problem) != "failed" {
		t.Errorf("%v", problem)
	}
	if err := os.RemoveAll(filepath.Join(w.root, "cgroup/system.slice/a.service")); err != nil {
		t.Fatal(err)
	}
	book.Prune()
	units.fail, units.told = nil, nil
	book.Prune()
	units.expect("restore a.service 7")
	book.Prune()
	units.expect()
}

// TestAMarkedProcessThatWasMovedStaysThere: marking it again must not take it out of what it was put into.
func TestAMarkedProcessThatWasMovedStaysThere(t *testing.T) {
	w, _, book := withSystemd(t)
	_, problem := book.Mark(1000, 50, "test")
	must(t, problem)
	w.write("proc/50/cgroup", "0::/system.slice/jail.service\n")
	w.write("cgroup/system.slice/jail.service/cgroup.procs", "50\n")
	_, problem = book.Mark(1000, 50, "test")
	must(t, problem)
	w.expect(50, "/system.slice/jail.service 6000/0 6000/0")
	_, problem = book.Unmark(1000, 50)
	must(t, problem)
	w.expect(50, "/system.slice/jail.service 0/0 4001/0")
}

// TestRulesKeepLimits: a rule that names a program frees nobody who starts it; root who marks one process may.
func TestRulesKeepLimits(t *testing.T) {
	w := newWorld(t)
	book := w.book()
	w.write("cgroup/user/pids.max", "50\n")
	w.process(42, 0, 1000, "/user", 1)
	done, problem := book.MarkByRule(42, "backups")
	must(t, problem)
	w.expect(42, "/user 6000/0 6000/0")
	if len(done.Lacks) == 0 || !strings.Contains(done.Lacks[0], "pids.max of /user") {
		t.Errorf("it lacks %q", done.Lacks)
	}
}

// TestThreadsOfUsersLeaveRoomForRoot: what is remembered of each thread is bounded, too.
func TestThreadsOfUsersLeaveRoomForRoot(t *testing.T) {
	w := newWorld(t)
	book := w.book()
	w.process(42, 0, 1000, "/user", 1)
	many := &Record{PID: 1000000, Known: map[int]actuate.Before{}}
	for tid := range maxUserThreads {
		many.Known[tid] = actuate.Before{}
	}
	book.records[many.PID] = many
	_, problem := book.Mark(1000, 42, "test")
	if want := "processes with 32768 threads are marked: that is the limit for all but root; unmark some first"; problem == nil ||
		problem.Code != wire.CodeBusy || problem.Message != want {
		t.Errorf("%v", problem)
	}
	_, problem = book.Mark(0, 42, "test")
	must(t, problem)
}

func TestAProcessHasTooManyThreads(t *testing.T) {
	w := newWorld(t)
	book := w.book()
	w.process(42, 0, 1000, "/user", 1)
	for tid := range maxUserThreads {
		w.threads[42] = append(w.threads[42], actuate.Thread{TID: 200000 + tid})
	}
	if _, problem := book.Mark(0, 42, "test"); code(problem) != "failed" || !strings.Contains(problem.Message, "32770 threads") {
		t.Errorf("%v", problem)
	}
	if w.files() != 0 || book.Count().Processes != 0 {
		t.Errorf("%d files, %+v", w.files(), book.Count())
	}
}

// TestUsersLeaveMarksForRoot: however many processes users mark, root can mark one more.
func TestUsersLeaveMarksForRoot(t *testing.T) {
	w := newWorld(t)
	book := w.book()
	w.process(42, 0, 1000, "/user", 1)
	for pid := range maxUserMarks {
		book.records[1000000+pid] = &Record{PID: 1000000 + pid}
	}
	if _, problem := book.Mark(1000, 42, "test"); code(problem) != "busy" {
		t.Errorf("%v", problem)
	}
	_, problem := book.Mark(0, 42, "test")
	must(t, problem)
}

// TestMarkedUnitsTakeNoRoomOfScopes: they are root's, and only users' scopes are bounded.
func TestMarkedUnitsTakeNoRoomOfScopes(t *testing.T) {
	w, _, book := withSystemd(t)
	for i := range maxScopes {
		group := fmt.Sprintf("/system.slice/b%d.service", i)
		w.join(100+i, 0, group)
		_, problem := book.MarkGroup(group)
		must(t, problem)
	}
	_, problem := book.Mark(1000, 50, "test")
	must(t, problem)
	w.expect(50, "/user.slice/user-1000.slice/idletime-session-1.scope 6000/0 6000/0")
}

// TestMembersLeaveMarksForRoot: whatever users start in a cgroup that root has marked, root can mark one more.
func TestMembersLeaveMarksForRoot(t *testing.T) {
	w := newWorld(t)
	book := w.book()
	w.process(42, 0, 0, "/other", 1)
	w.process(43, 0, 1000, "/user", 1)
	w.process(44, 0, 0, "/user", 1)
	for pid := range maxMemberMarks {
		book.records[1000000+pid] = &Record{PID: 1000000 + pid}
	}
	w.write("cgroup/user/cgroup.procs", "43\n44\n")
	done, problem := book.MarkGroup("/user")
	must(t, problem)
	if done.Processes != 1 || book.records[43] != nil || book.records[44] == nil {
		t.Errorf("%+v", done)
	}
	_, problem = book.Mark(0, 42, "test")
	must(t, problem)
}

// TestWhatCannotBeLookedAtHasNotEnded: neither a process nor a group, as where there are no more descriptors.
func TestWhatCannotBeLookedAtHasNotEnded(t *testing.T) {
	w := newWorld(t)
	book := w.book()
	w.process(42, 0, 1000, "/other", 1)
	_, problem := book.Mark(1000, 42, "test")
	must(t, problem)
	_, problem = book.MarkGroup("/user")
	must(t, problem)
	again := w.away("proc/42/stat", "cgroup/user")
	if ended := book.Prune(); ended != 0 {
		t.Errorf("%d have ended", ended)
	}
	again()
	_, problem = book.Unmark(1000, 42)
	must(t, problem)
	_, problem = book.UnmarkGroup("/user")
	must(t, problem)
}
