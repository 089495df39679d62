// SPDX-License-Identifier: GPL-2.0-or-later

package agent

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"idletime.org/guest-agent/internal/facts"
	"idletime.org/guest-agent/internal/wire"
)

// daemon is one on an empty fixture: no port, no cgroups, no process.
func daemon(t *testing.T) *Daemon {
	t.Helper()
	root := t.TempDir()
	for _, folder := range []string{"proc/self", "sys/class/block"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
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
		_, problem = made.handle(context.Background(), Peer{UID: 1000}, call)
		got := ""
		if problem != nil {
			got = problem.Code
		}
		if got != want {
			t.Errorf("%s: %q, not %q", line, got, want)
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
