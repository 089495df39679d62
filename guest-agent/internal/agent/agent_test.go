// SPDX-License-Identifier: GPL-2.0-or-later

package agent

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"idletime.org/guest-agent/internal/actuate/ioprio"
	"idletime.org/guest-agent/internal/facts"
	"idletime.org/guest-agent/internal/wire"
)

// peer and contained are the pids of a client, and of one in a container.
const peer, contained = "5", "6"

// daemon is one on an empty fixture: no port, no cgroups, no process but clients.
func daemon(t *testing.T) *Daemon {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "sys/class/block"), 0o755); err != nil {
		t.Fatal(err)
	}
	for process, namespace := range map[string]string{"self": "pid:[1]", peer: "pid:[1]", contained: "pid:[2]"} {
		folder := filepath.Join(root, "proc", process, "ns")
		if err := errors.Join(os.MkdirAll(folder, 0o755), os.Symlink(namespace, filepath.Join(folder, "pid"))); err != nil {
			t.Fatal(err)
		}
	}
	made, err := New(Config{Root: facts.Root(root), Run: filepath.Join(root, "run"), RulesFile: "rules.yaml", Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, server := range made.servers {
			server.listener.Close()
		}
	})
	return made
}

// TestReleaseNeedsNoAgent: what one that was killed has marked is as it was, and nothing is left.
func TestReleaseNeedsNoAgent(t *testing.T) {
	root := t.TempDir()
	if err := os.Symlink("/proc", filepath.Join(root, "proc")); err != nil {
		t.Fatal(err)
	}
	config := Config{Root: facts.Root(root), Run: filepath.Join(root, "run"), RulesFile: "rules.yaml", Version: "test"}
	killed, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	sleep := exec.Command("sleep", "1000")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sleep.Process.Kill(); _ = sleep.Wait() }()
	if err := ioprio.Set(sleep.Process.Pid, ioprio.None); err != nil {
		t.Fatal(err)
	}
	if _, problem := killed.book.Mark(0, sleep.Process.Pid, "test"); problem != nil {
		t.Fatal(problem)
	}
	if _, err := New(config); err == nil || !strings.Contains(err.Error(), "another agent listens there") {
		t.Errorf("beside an agent: %v", err)
	}
	if _, err := killed.link.ask(context.Background(), func(request wire.Request) wire.Request {
		request.Class = wire.Background
		return request
	}, part{}); err != nil {
		t.Fatal(err)
	}
	for _, server := range killed.servers {
		server.listener.SetUnlinkOnClose(false)
		server.listener.Close()
	}
	next, err := New(config)
	if err == nil {
		err = next.Release()
	}
	if err != nil {
		t.Fatal(err)
	}
	if priority, err := ioprio.Get(sleep.Process.Pid); err != nil || ioprio.Is(priority) {
		t.Errorf("the process has the priority %#x (%v)", priority, err)
	}
	for name, want := range map[string]int{"run": 1, "run/marks": 0} {
		if left, err := os.ReadDir(filepath.Join(root, name)); err != nil || len(left) != want {
			t.Errorf("%s has %v (%v)", name, left, err)
		}
	}
}

// TestRefusals: only root speaks for the VM, and for cgroups and units.
func TestRefusals(t *testing.T) {
	made := daemon(t)
	for line, want := range map[string]string{
		`{"version":1,"type":"vm","class":"background"}`:                                wire.CodeNotPermitted,
		`{"version":1,"type":"vm","class":"foreground"}`:                                wire.CodeNotPermitted,
		`{"version":1,"type":"queue","device":"vdb","queues":"1","class":"background"}`: wire.CodeNotPermitted,
		`{"version":1,"type":"mark","target":{"cgroup":"/a"}}`:                          wire.CodeNotPermitted,
		`{"version":1,"type":"mark","target":{"unit":"a"}}`:                             wire.CodeNotPermitted,
		`{"version":1,"type":"unmark","target":{"cgroup":"/a"}}`:                        wire.CodeNotPermitted,
		`{"version":1,"type":"unmark","target":{"unit":"a"}}`:                           wire.CodeNotPermitted,
		`{"version":1,"type":"mark","target":{"pid":9}}`:                                wire.CodeNotFound,
		`{"version":1,"type":"status"}`:                                                 "",
	} {
		call, problem := wire.ParseCall([]byte(line))
		if problem != nil {
			t.Fatal(problem)
		}
		_, problem = made.handle(context.Background(), Peer{UID: 1000, PID: 5}, call)
		got := ""
		if problem != nil {
			got = problem.Code
		}
		if got != want {
			t.Errorf("%s: %q, not %q", line, got, want)
		}
	}
}

// TestAPidOfAContainerIsAnotherProcess of the same number, which must not be marked instead.
func TestAPidOfAContainerIsAnotherProcess(t *testing.T) {
	made := daemon(t)
	for pid, want := range map[int]string{5: wire.CodeNotFound, 6: wire.CodeNotPermitted, 7: wire.CodeNotPermitted, 0: wire.CodeNotPermitted} {
		for _, kind := range []string{wire.TypeMark, wire.TypeUnmark} {
			call := &wire.Call{Head: wire.Head{Type: kind}, Target: &wire.Target{PID: 9}}
			if _, problem := made.handle(context.Background(), Peer{PID: pid}, call); problem == nil || problem.Code != want {
				t.Errorf("client %d asks to %s: %v, not %s", pid, kind, problem, want)
			}
		}
	}
}

func TestRootMayAsk(t *testing.T) {
	made := daemon(t)
	result, problem := made.handle(context.Background(), Peer{}, &wire.Call{Head: wire.Head{Type: wire.TypeVM}, Class: wire.Background})
	if problem != nil || result.(wire.Asked).Answered {
		t.Errorf("%+v (%v)", result, problem)
	}
	_, problem = made.handle(context.Background(), Peer{}, &wire.Call{Head: wire.Head{Type: wire.TypeQueue}, Device: "vdz", Queues: "1", Class: wire.Background})
	if problem == nil || problem.Code != wire.CodeNotFound {
		t.Errorf("%v", problem)
	}
}

// TestSocketsAreForWhomTheyAre: one for everybody, one that only root can open.
func TestSocketsAreForWhomTheyAre(t *testing.T) {
	made := daemon(t)
	for name, want := range map[string]os.FileMode{wire.SocketName: 0o666, wire.RootSocketName: 0o600} {
		info, err := os.Stat(filepath.Join(made.config.Run, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v (%v)", name, info, err)
		}
	}
}
