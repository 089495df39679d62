// SPDX-License-Identifier: GPL-2.0-or-later

package idletime

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"idletime/guest-agent/actuate/ioprio"
)

func priority(t *testing.T, tid int) int {
	t.Helper()
	value, err := ioprio.Get(tid)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// prioritize gives a thread a priority: a test run may be in the idle class itself, and its children inherit that.
func prioritize(t *testing.T, tid, value int) {
	t.Helper()
	if err := ioprio.Set(tid, value); err != nil {
		t.Fatal(err)
	}
}

func TestBackground(t *testing.T) {
	for _, before := range []int{ioprio.None, ioprio.Idle} {
		t.Run(fmt.Sprintf("%#x", before), func(t *testing.T) { background(t, before) })
	}
}

func background(t *testing.T, before int) {
	// Not unlocked: the thread ends with the goroutine, and its priority with it.
	runtime.LockOSThread()
	prioritize(t, 0, before)
	was := priority(t, 0)
	ours := errors.New("ours")
	err := Background(func() error {
		if got := priority(t, 0); !ioprio.Is(got) {
			t.Errorf("inside it is %#x", got)
		}
		return ours
	})
	if !errors.Is(err, ours) {
		t.Errorf("the function's error became %v", err)
	}
	if got := priority(t, 0); got != was {
		t.Errorf("before it was %#x, afterwards it is %#x", was, got)
	}
}

func TestAlone(t *testing.T) {
	sleep := exec.Command("sleep", "1000")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sleep.Process.Kill(); _ = sleep.Wait() }()
	prioritize(t, sleep.Process.Pid, ioprio.None)
	before := priority(t, sleep.Process.Pid)
	result, err := MarkAlone(sleep.Process.Pid)
	if err != nil || result.Threads != 1 || len(result.Lacks) != 1 || !ioprio.Is(priority(t, sleep.Process.Pid)) {
		t.Errorf("%+v (%v)", result, err)
	}
	if result, err := UnmarkAlone(sleep.Process.Pid); err != nil || result.Threads != 1 || priority(t, sleep.Process.Pid) != before {
		t.Errorf("%+v (%v)", result, err)
	}
	for _, pid := range []int{sleep.Process.Pid, 1 << 22} {
		if _, err := UnmarkAlone(pid); err == nil {
			t.Errorf("pid %d is unmarked", pid)
		}
	}
	if _, err := MarkAlone(1); err == nil {
		t.Error("init is marked")
	}
}

func TestNoAgent(t *testing.T) {
	_, err := Dial(filepath.Join(t.TempDir(), "none"))
	if err == nil || !strings.Contains(err.Error(), "is idletime-agent running?") || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// A function whose disk requests are background; no agent and no right is needed.
func ExampleBackground() {
	err := Background(func() error {
		return os.WriteFile(filepath.Join(os.TempDir(), "idletime-example"), []byte("can wait"), 0o600)
	})
	os.Remove(filepath.Join(os.TempDir(), "idletime-example"))
	fmt.Println(err)
	// Output: <nil>
}
