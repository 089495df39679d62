// SPDX-License-Identifier: GPL-2.0-or-later

package alone

import (
	"os/exec"
	"testing"

	"idletime.org/guest-agent/internal/actuate/ioprio"
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

func TestAlone(t *testing.T) {
	sleep := exec.Command("sleep", "1000")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sleep.Process.Kill(); _ = sleep.Wait() }()
	prioritize(t, sleep.Process.Pid, ioprio.None)
	before := priority(t, sleep.Process.Pid)
	result, err := Mark(sleep.Process.Pid)
	if err != nil || result.Threads != 1 || len(result.Lacks) != 1 || !ioprio.Is(priority(t, sleep.Process.Pid)) {
		t.Errorf("%+v (%v)", result, err)
	}
	if result, err := Unmark(sleep.Process.Pid); err != nil || result.Threads != 1 || priority(t, sleep.Process.Pid) != before {
		t.Errorf("%+v (%v)", result, err)
	}
	for _, pid := range []int{sleep.Process.Pid, 1 << 22} {
		if _, err := Unmark(pid); err == nil {
			t.Errorf("pid %d is unmarked", pid)
		}
	}
	if _, err := Mark(1); err == nil {
		t.Error("init is marked")
	}
}
