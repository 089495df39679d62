// SPDX-License-Identifier: GPL-2.0-or-later

package marks

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"idletime.org/guest-agent/internal/actuate"
	"idletime.org/guest-agent/internal/actuate/cgroup"
	"idletime.org/guest-agent/internal/facts"
	"idletime.org/guest-agent/internal/wire"
)

// kernelBook is a book on the running kernel; only in a guest, as root, with IDLETIME_TEST_CGROUP naming the cgroup mount.
func kernelBook(t *testing.T) (*Book, Kernel, string) {
	mount := os.Getenv("IDLETIME_TEST_CGROUP")
	if mount == "" {
		t.Skip("IDLETIME_TEST_CGROUP is not set: this test belongs into a guest")
	}
	hands := Kernel{Root: "/", Tree: &cgroup.Tree{Mount: mount}}
	folder := filepath.Join(t.TempDir(), "marks")
	book, err := New("/", hands, hands.Tree, folder, os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	book.Load()
	t.Cleanup(func() {
		if err := book.Close(); err != nil {
			t.Error(err)
		}
		if hands.Tree.Has(cgroup.Slice) {
			t.Error("the cgroup is left")
		}
	})
	return book, hands, folder
}

func sleeper(t *testing.T) int {
	t.Helper()
	command := exec.Command("sleep", "1000")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	return command.Process.Pid
}

// rounds is how often a process is marked and unmarked: IDLETIME_TEST_MARKS, or 10,000.
func rounds(t *testing.T) int {
	text := os.Getenv("IDLETIME_TEST_MARKS")
	if text == "" {
		return 10000
	}
	count, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("IDLETIME_TEST_MARKS is %q: want a number", text)
	}
	return count
}

// TestKernelManyMarksLeaveNothing marks and unmarks a process again and again.
func TestKernelManyMarksLeaveNothing(t *testing.T) {
	book, hands, folder := kernelBook(t)
	pid := sleeper(t)
	before := describe(t, hands, pid)
	descriptors := openFiles(t)
	for round := range rounds(t) {
		if _, problem := book.Mark(0, pid, "test"); problem != nil {
			t.Fatalf("round %d: %v", round, problem)
		}
		if _, problem := book.Unmark(0, pid); problem != nil {
			t.Fatalf("round %d: %v", round, problem)
		}
	}
	if after := describe(t, hands, pid); after != before {
		t.Errorf("the process was %s and is %s", before, after)
	}
	if now := openFiles(t); now > descriptors {
		t.Errorf("%d files are open, before there were %d", now, descriptors)
	}
	if left, _ := os.ReadDir(folder); len(left) != 0 || book.Count() != (wire.Counts{}) {
		t.Errorf("%d files and %+v are left", len(left), book.Count())
	}
}

func describe(t *testing.T, hands Kernel, pid int) string {
	t.Helper()
	threads, err := hands.Threads(pid)
	if err != nil {
		t.Fatal(err)
	}
	process, err := hands.Root.Process(pid)
	if err != nil {
		t.Fatal(err)
	}
	known := map[int]actuate.Before{}
	actuate.Remember(known, pid, threads)
	return strings.Join([]string{process.Cgroup, string(wire.Encode(known))}, " ")
}

func openFiles(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// TestKernelChildren: what a marked process starts is marked, and goes back with it.
func TestKernelChildren(t *testing.T) {
	book, hands, _ := kernelBook(t)
	command := exec.Command("sh", "-c", "read line; sleep 1000 & echo $!; wait")
	input, _ := command.StdinPipe()
	output, _ := command.StdoutPipe()
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	if _, problem := book.Mark(0, command.Process.Pid, "test"); problem != nil {
		t.Fatal(problem)
	}
	_, _ = input.Write([]byte("go\n"))
	line := make([]byte, 16)
	length, _ := output.Read(line)
	child := 0
	for _, digit := range strings.TrimSpace(string(line[:length])) {
		child = child*10 + int(digit-'0')
	}
	t.Cleanup(func() { process, _ := os.FindProcess(child); _ = process.Kill() })
	if got := inGroup(t, hands.Root, child); got != cgroup.Background {
		t.Errorf("the child is in %s", got)
	}
	if _, problem := book.Unmark(0, command.Process.Pid); problem != nil {
		t.Fatal(problem)
	}
	threads, err := hands.Threads(child)
	if err != nil || len(actuate.Mark(threads, "", actuate.Wish{})) != 1 || inGroup(t, hands.Root, child) != "/" {
		t.Errorf("the child is still marked: %+v in %s (%v)", threads, inGroup(t, hands.Root, child), err)
	}
}

func inGroup(t *testing.T, root facts.Root, pid int) string {
	t.Helper()
	process, err := root.Process(pid)
	if err != nil {
		t.Fatal(err)
	}
	return process.Cgroup
}
