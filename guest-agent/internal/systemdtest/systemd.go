// SPDX-License-Identifier: GPL-2.0-or-later

// Package systemdtest runs tests on a real systemd, in namespaces and a cgroup of its own: beside the running system, which
// stays as it is. It needs root and Debian's systemd; where the kernel's controllers belong to cgroup v1, units have none.
package systemdtest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"idletime.org/guest-agent/internal/facts"
)

// program is Debian's systemd; the tests below run it, in namespaces of its own.
const program = "/lib/systemd/systemd"

// bootScript begins as pid 1 of new namespaces, in a cgroup of its own, and becomes systemd. Nothing outside changes: what
// it could write to is either empty and new, or read-only.
const bootScript = `set -e
mount --make-rprivate /
mount -t proc proc /proc
mount --bind "$1" "$1"
for folder in / /dev /sys /proc/sys; do
    [ "$folder" = / ] || mount --bind "$folder" "$folder"
    mount -o remount,bind,ro "$folder"
done
mount -t cgroup2 cgroup2 /sys/fs/cgroup
for folder in /run /etc/systemd/system /lib/systemd/system-generators; do mount -t tmpfs tmpfs "$folder"; done
printf '[Unit]\nDescription=test\n' >/etc/systemd/system/test.target
exec env -i PATH="$PATH" container=test ` + program + ` --system --unit=test.target --log-target=console --log-level=warning`

// cgroupMount is where cgroup v2 is mounted here, below the tests' own root.
func cgroupMount(t *testing.T) string {
	t.Helper()
	mount, err := facts.Root("/").CgroupMount()
	if err != nil {
		t.Skipf("systemd needs it: %v", err)
	}
	return mount
}

// self is this test program.
func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// boot starts systemd in namespaces of its own; gives its pid. It ends with the test, with all that it started.
func boot(t *testing.T) int {
	t.Helper()
	if _, err := os.Stat(program); err != nil || os.Geteuid() != 0 {
		t.Skipf("this test runs %s, as root", program)
	}
	group := filepath.Join(cgroupMount(t), "idletime-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skipf("systemd needs a cgroup of its own: %v", err)
	}
	folder, err := os.Open(group)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	said := &bytes.Buffer{}
	command := exec.Command("sh", "-c", bootScript, "boot", filepath.Dir(self(t)))
	command.Stdout, command.Stderr = said, said
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS |
			syscall.CLONE_NEWNET | syscall.CLONE_NEWCGROUP,
		UseCgroupFD: true, CgroupFD: int(folder.Fd()), Pdeathsig: syscall.SIGKILL, Setsid: true,
	}
	if err := command.Start(); err != nil {
		t.Skipf("systemd cannot run here: %v", err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		removeGroups(t, group)
		if t.Failed() {
			t.Logf("systemd said: %s", said)
		}
	})
	socket := fmt.Sprintf("/proc/%d/root/run/systemd/private", command.Process.Pid)
	Eventually(t, "systemd listens", func() bool { _, err := os.Stat(socket); return err == nil })
	return command.Process.Pid
}

// removeGroups takes an empty tree of cgroups away; the kernel may still be emptying it.
func removeGroups(t *testing.T, group string) {
	t.Helper()
	Eventually(t, "its cgroups are gone", func() bool {
		folders := []string{}
		_ = filepath.WalkDir(group, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				folders = append(folders, path)
			}
			return nil
		})
		for _, folder := range slices.Backward(folders) {
			_ = syscall.Rmdir(folder)
		}
		_, err := os.Stat(group)
		return errors.Is(err, fs.ErrNotExist)
	})
}

// Eventually waits for something that comes soon, at most 30 s.
func Eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never happens that %s", what)
		}
	}
}

// insideFolder is the variable that tells a test that it runs inside, and the folder of its package.
const insideFolder = "IDLETIME_TEST_SYSTEMD"

// Run boots systemd and has this test program run the tests that match a pattern inside; they begin with Inside.
func Run(t *testing.T, pattern string) {
	t.Helper()
	pid := boot(t)
	command := exec.Command("nsenter", "-t", strconv.Itoa(pid), "-a", self(t), "-test.run", pattern, "-test.v")
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	command.Env = append(os.Environ(), insideFolder+"="+folder, "TMPDIR="+filepath.Dir(self(t)))
	// What a failed test leaves may hold our pipe.
	command.WaitDelay = 10 * time.Second
	output, err := command.CombinedOutput()
	t.Logf("%s", output)
	if err != nil || !bytes.Contains(output, []byte("--- PASS: ")) {
		t.Errorf("%v", err)
	}
}

// Inside skips a test that Run does not run.
func Inside(t *testing.T) {
	t.Helper()
	folder := os.Getenv(insideFolder)
	if folder == "" {
		t.Skip("another test runs this one, on a real systemd")
	}
	if err := os.Chdir(folder); err != nil {
		t.Fatal(err)
	}
}
