// SPDX-License-Identifier: GPL-2.0-or-later

package agent

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"idletime.org/guest-agent/internal/actuate"
	"idletime.org/guest-agent/internal/actuate/dscp"
	"idletime.org/guest-agent/internal/actuate/ioprio"
	"idletime.org/guest-agent/internal/facts"
	"idletime.org/guest-agent/internal/marks"
)

// stillHands remembers what was set, for processes of one thread.
type stillHands map[int]int

func (h stillHands) Threads(pid int) ([]actuate.Thread, error) {
	return []actuate.Thread{{TID: pid, IOPrio: h[pid]}}, nil
}

func (h stillHands) Do(pid int, step actuate.Step) error {
	h[pid] = step.Value
	return nil
}

func (h stillHands) Idle(pid int) bool { return ioprio.Is(h[pid]) }

func (h stillHands) Packets([]dscp.Group) error { return nil }

func (h stillHands) Inherit(bool) error { return nil }

func (h stillHands) HasTable(string) bool { return true }

func (h stillHands) Lift(bool) error { return nil }

// watched is a watch over a fixture with a rules file and processes.
func watched(t *testing.T, rules string) (*Watch, string) {
	t.Helper()
	root := t.TempDir()
	put(t, root, "etc/rules.yaml", rules)
	for pid, exe := range map[int]string{1: "/sbin/init", 10: "/usr/bin/restic", 11: "/usr/bin/cc", 12: "/usr/sbin/sshd"} {
		folder := fmt.Sprintf("proc/%d/", pid)
		put(t, root, folder+"stat", fmt.Sprintf("%d (x) S 0 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0", pid))
		put(t, root, folder+"status", "Name:\tx\nUid:\t0\t0\t0\t0\n")
		put(t, root, folder+"cgroup", "0::/\n")
		if err := os.Symlink(exe, filepath.Join(root, folder, "exe")); err != nil {
			t.Fatal(err)
		}
	}
	book, err := marks.New(facts.Root(root), stillHands{}, nil, "", 99)
	if err != nil {
		t.Fatal(err)
	}
	return NewWatch(facts.Root(root), book, "etc/rules.yaml", 99), root
}

func put(t *testing.T, root, path, content string) {
	t.Helper()
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func markedBy(watch *Watch) string {
	text := ""
	for _, record := range watch.Book.List(-1) {
		text += fmt.Sprintf("%d by %s; ", record.PID, record.Origin)
	}
	return text
}

func expectMarks(t *testing.T, watch *Watch, want string) {
	t.Helper()
	watch.Scan()
	if got := markedBy(watch); got != want {
		t.Errorf("marked: %s, not %s", got, want)
	}
}

const backups = "rules:\n  - name: backups\n    executable: /usr/bin/restic\n"

func TestRulesMarkAndUnmark(t *testing.T) {
	watch, root := watched(t, backups)
	expectMarks(t, watch, "10 by rule backups; ")
	expectMarks(t, watch, "10 by rule backups; ")
	put(t, root, "etc/rules.yaml", "rules:\n  - name: builds\n    executable: /usr/bin/cc\n")
	watch.Load()
	expectMarks(t, watch, "11 by rule builds; ")
	if err := os.Remove(filepath.Join(root, "etc/rules.yaml")); err != nil {
		t.Fatal(err)
	}
	watch.Load()
	expectMarks(t, watch, "")
}

func TestMarksOfPeopleStay(t *testing.T) {
	watch, _ := watched(t, backups)
	if _, problem := watch.Book.Mark(0, 11, "uid 0"); problem != nil {
		t.Fatal(problem)
	}
	expectMarks(t, watch, "10 by rule backups; 11 by uid 0; ")
	put(t, string(watch.Root), "etc/rules.yaml", "")
	watch.Load()
	expectMarks(t, watch, "11 by uid 0; ")
}

// TestWhatARuleHasLeftStays, and is the rule's again when it wants it.
func TestWhatARuleHasLeftStays(t *testing.T) {
	watch, root := watched(t, backups)
	for _, pid := range []int{10, 11} {
		put(t, root, fmt.Sprintf("marks/process-%d.json", pid), fmt.Sprintf(`{"pid":%d,"start":5,"origin":"left by rule a","known":{}}`, pid))
	}
	book, err := marks.New(facts.Root(root), stillHands{}, nil, filepath.Join(root, "marks"), 99)
	if err != nil {
		t.Fatal(err)
	}
	book.Load()
	watch.Book = book
	expectMarks(t, watch, "10 by rule backups; 11 by left by rule a; ")
}

// TestAUserDoesNotCancelARule by a program that is named as sshd is.
func TestAUserDoesNotCancelARule(t *testing.T) {
	watch, root := watched(t, "rules:\n  - name: all\n    cgroup: /a\n")
	put(t, root, "proc/11/cgroup", "0::/a\n")
	expectMarks(t, watch, "11 by rule all; ")
	put(t, root, "proc/12/status", "Name:\tx\nUid:\t1000\t1000\t1000\t1000\n")
	put(t, root, "proc/12/cgroup", "0::/a\n")
	expectMarks(t, watch, "11 by rule all; ")
	if refused := watch.Status().Refused; len(refused) != 0 {
		t.Errorf("%+v", refused)
	}
}

// TestRulesLeaveRoomForRoot: what users start does not take all of it, and what is left out is told once.
func TestRulesLeaveRoomForRoot(t *testing.T) {
	watch, root := watched(t, "rules:\n  - name: all\n    cgroup: /a\n")
	process := func(pid, uid int, group string) {
		folder := fmt.Sprintf("proc/%d/", pid)
		put(t, root, folder+"stat", fmt.Sprintf("%d (x) S 0 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0", pid))
		put(t, root, folder+"status", fmt.Sprintf("Name:\tx\nUid:\t%d\t%d\t%d\t%d\n", uid, uid, uid, uid))
		put(t, root, folder+"cgroup", "0::"+group+"\n")
	}
	for pid := 100; pid < 1130; pid++ {
		process(pid, 1000, "/a")
	}
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	watch.Scan()
	if got := len(watch.Book.List(-1)); got != 1024 {
		t.Errorf("%d are marked, not a quarter of 4096", got)
	}
	watch.Scan()
	// Root's comes after one for which there is no room.
	process(2000, 1000, "/a")
	process(2001, 0, "/a")
	ofUser, err1 := watch.Root.Process(2000)
	ofRoot, err2 := watch.Root.Process(2001)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	watch.markAll(map[int]string{2000: "all", 2001: "all"}, []facts.Process{ofUser, ofRoot})
	if got := len(watch.Book.List(-1)); got != 1025 {
		t.Errorf("%d are marked: root has no room", got)
	}
	if got := log.String(); strings.Count(got, "not marked") != 1 || !strings.Contains(got, "rule all: 6 processes are not marked") {
		t.Errorf("%s", got)
	}
}

func TestABadFileChangesNothingButTheStatus(t *testing.T) {
	watch, root := watched(t, backups)
	put(t, root, "etc/rules.yaml", "rules:\n  - executable: [\n")
	watch.Load()
	expectMarks(t, watch, "10 by rule backups; ")
	if status := watch.Status(); status.Count != 1 || !strings.HasPrefix(status.Error, "etc/rules.yaml:") {
		t.Errorf("%+v", status)
	}
	put(t, root, "etc/rules.yaml", backups)
	watch.Load()
	if status := watch.Status(); status.Error != "" {
		t.Errorf("%+v", status)
	}
}

func TestARefusedRuleMarksNothing(t *testing.T) {
	watch, _ := watched(t, "rules:\n  - name: all\n    user: root\n  - executable: /usr/bin/cc\n")
	put(t, string(watch.Root), "etc/passwd", "root:x:0:0::/:/bin/sh\n")
	watch.Load()
	expectMarks(t, watch, "11 by rule line 4; ")
	status := watch.Status()
	if len(status.Refused) != 1 || status.Refused[0].Rule != "all" || status.Refused[0].Line != 2 {
		t.Errorf("%+v", status.Refused)
	}
}
