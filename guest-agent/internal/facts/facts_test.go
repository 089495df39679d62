// SPDX-License-Identifier: GPL-2.0-or-later

package facts

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"idletime.org/guest-agent/internal/wire"
)

// tree makes a fixture: files by path; a value that begins with "->" is a link.
func tree(t *testing.T, files map[string]string) Root {
	t.Helper()
	root := t.TempDir()
	for path, content := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		target, link := strings.CutPrefix(content, "->")
		err := error(nil)
		if link {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return Root(root)
}

const stat = " S 7 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 5 2 0 987654 0 0\n"

func TestProcess(t *testing.T) {
	root := tree(t, map[string]string{
		"proc/42/stat":               "42 (a (b) c)" + stat,
		"proc/42/status":             "Name:\ta\nUid:\t1000\t1001\t1002\t1003\nGid:\t5\n",
		"proc/42/cgroup":             "1:name=systemd:/x\n0::/user.slice/a\n",
		"proc/42/exe":                "->/usr/bin/restic (deleted)",
		"proc/42/task/42/stat":       "42 (a)" + stat,
		"proc/42/task/42/children":   "50 51 \n",
		"proc/42/task/44/children":   "52 ",
		"proc/43/stat":               "43 (cut",
		"proc/44/stat":               "44 (a)" + strings.Replace(strings.Replace(stat, "S", "Z", 1), " 2 0 987654", " 1 0 987654", 1),
		"proc/self/mounts":           "proc /proc proc rw 0 0\ncgroup2 /hidden cgroup2 rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
		"etc/passwd":                 "root:x:0:0::/:/bin/sh\nbackup:x:34:34::/:/bin/sh\n",
		"sys/fs/cgroup/cgroup.procs": "",
	})
	want := Process{
		PID: 42, Parent: 7, Start: 987654, UIDs: [4]uint32{1000, 1001, 1002, 1003}, Comm: "a (b) c",
		Exe: "/usr/bin/restic", Cgroup: "/user.slice/a",
	}
	if got, err := root.Process(42); err != nil || got != want {
		t.Errorf("got %+v (%v), want %+v", got, err, want)
	}
	if _, err := root.Process(99); !errors.Is(err, ErrGone) {
		t.Errorf("a process that is not there gives %v", err)
	}
	if _, err := root.Process(44); !errors.Is(err, ErrGone) {
		t.Errorf("a zombie gives %v", err)
	}
	if _, err := root.Process(43); err == nil || errors.Is(err, ErrGone) {
		t.Errorf("a cut stat gives %v", err)
	}
	if got, err := root.Processes(); err != nil || !reflect.DeepEqual(got, []Process{want}) {
		t.Errorf("processes: %+v (%v)", got, err)
	}
	if got, err := root.Threads(42); err != nil || len(got) != 2 {
		t.Errorf("threads: %v (%v)", got, err)
	}
	if got := root.Nice(42, 42); got != 5 {
		t.Errorf("nice is %d, not 5", got)
	}
	if got := root.Children(42); len(got) != 3 {
		t.Errorf("children: %v", got)
	}
	if got, err := root.CgroupMount(); err != nil || got != root.Path("sys/fs/cgroup") {
		t.Errorf("cgroups are at %s (%v)", got, err)
	}
	for name, want := range map[string]uint32{"backup": 34, "77": 77} {
		if got, err := root.UserID(name); err != nil || got != want {
			t.Errorf("user %s is %d (%v)", name, got, err)
		}
	}
	if _, err := root.UserID("nobody-here"); err == nil {
		t.Error("a user who is not there has a number")
	}
}

// TestContained: as the namespaces say, and where they cannot be read.
func TestContained(t *testing.T) {
	root := tree(t, map[string]string{
		"proc/self/ns/cgroup": "->cgroup:[1]", "proc/self/ns/pid": "->pid:[1]",
		"proc/1/ns/cgroup": "->cgroup:[1]", "proc/1/ns/pid": "->pid:[1]",
		"proc/2/ns/cgroup": "->cgroup:[2]", "proc/2/ns/pid": "->pid:[1]",
		"proc/3/ns/cgroup": "->cgroup:[1]", "proc/3/ns/pid": "->pid:[2]",
		"proc/4/ns/cgroup": "->cgroup:[1]",
	})
	for pid, want := range map[int]bool{1: false, 2: true, 3: true, 4: true, 5: true} {
		if got := root.Contained(pid); got != want {
			t.Errorf("process %d is contained: %v", pid, got)
		}
	}
	if without := tree(t, map[string]string{"proc/1/stat": ""}); without.Contained(1) {
		t.Error("a kernel without namespaces has containers")
	}
	if real := Root("/"); real.Contained(os.Getpid()) {
		t.Error("this program is in another container than itself")
	}
}

// leaderless says that this program is to end its first thread, and to go on by the others.
const leaderless = "IDLETIME_TEST_LEADERLESS"

// init runs in the first thread. The others go on until their input ends.
func init() {
	if os.Getenv(leaderless) == "" {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	runtime.LockOSThread()
	_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
}

// TestAProcessOutlivesItsLeader: it has ended when all its threads have.
func TestAProcessOutlivesItsLeader(t *testing.T) {
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), leaderless+"=1")
	input, err := command.StdinPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = input.Close(); _ = command.Wait() }()
	pid := command.Process.Pid
	state := func() string {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))[0]
	}
	for begin := time.Now(); state() != "Z"; time.Sleep(time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("the first thread has not ended: %s", state())
		}
	}
	if process, err := Root("/").Process(pid); err != nil || process.Start == 0 {
		t.Errorf("%+v (%v)", process, err)
	}
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		if _, err := Root("/").Process(pid); errors.Is(err, ErrGone) {
			break
		} else if time.Since(begin) > 20*time.Second {
			t.Fatalf("all threads have ended: %v", err)
		}
	}
}

// TestNamesAreHarmless: a process chooses its name, and root reads it on a terminal.
func TestNamesAreHarmless(t *testing.T) {
	root := tree(t, map[string]string{"proc/42/stat": "42 (a\x1b[2J\n\u009b\xff\u00e9)" + stat})
	if process, err := root.stat(42); err != nil || process.Comm != "a?[2J???\u00e9" {
		t.Errorf("%q (%v)", process.Comm, err)
	}
}

func TestOwned(t *testing.T) {
	for uids, want := range map[[4]uint32]bool{
		{5, 5, 5, 5}: true, {5, 5, 5, 0}: true, {5, 0, 5, 5}: false, {5, 5, 0, 5}: false, {0, 5, 5, 5}: false,
	} {
		if got := (Process{UIDs: uids}).Owned(5); got != want {
			t.Errorf("%v is owned by 5: %v", uids, got)
		}
	}
}

func TestUnreadableUsersAreNobodys(t *testing.T) {
	if uids := parseUIDs("Name:\tx\n"); (Process{UIDs: uids}).Owned(0) {
		t.Error("a process without a Uid line counts as root's")
	}
}

func TestProtected(t *testing.T) {
	for _, test := range []struct {
		process Process
		want    string
	}{
		{Process{PID: 1}, "init"},
		{Process{PID: 2, Comm: "kthreadd"}, "thread of the kernel"},
		{Process{PID: 50, Kernel: true}, "thread of the kernel"},
		{Process{PID: 77}, "agent itself"},
		{Process{PID: 5, Exe: "/usr/sbin/sshd"}, "sshd"},
		{Process{PID: 5, Exe: "/usr/lib/openssh/sshd-session"}, "sshd"},
		{Process{PID: 5, Comm: "sshd"}, "sshd"},
		{Process{PID: 5, Exe: "/usr/bin/bash", Comm: "sshd"}, ""},
		{Process{PID: 5, Exe: "/usr/bin/restic"}, ""},
	} {
		got := test.process.Protected(77)
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%+v: %q, want %q", test.process, got, test.want)
		}
	}
}

// TestLeftOut: only root's sshd, outside of login sessions, protects what it is in.
func TestLeftOut(t *testing.T) {
	for _, test := range []struct {
		process Process
		want    bool
	}{
		{Process{PID: 5, Exe: "/usr/sbin/sshd", Cgroup: "/system.slice/ssh.service"}, false},
		{Process{PID: 5, Exe: "/usr/sbin/sshd", Cgroup: "/user.slice/user-1000.slice/session-3.scope"}, true},
		{Process{PID: 5, Exe: "/home/alice/sshd", UIDs: [4]uint32{1000, 1000, 1000, 1000}}, true},
		{Process{PID: 5, Exe: "/home/alice/x", UIDs: [4]uint32{1000, 1000, 1000, 1000}}, false},
	} {
		if got := test.process.LeftOut(); got != test.want {
			t.Errorf("%+v: %v, want %v", test.process, got, test.want)
		}
	}
}

func TestDevice(t *testing.T) {
	root := tree(t, map[string]string{
		"sys/devices/pci0000:00/0000:00:05.0/virtio2/block/vdb/serial": "backup\n",
		"sys/devices/pci0000:00/0000:00:05.0/virtio2/block/vdb/device": "->../../../virtio2",
		"sys/class/block/vdb": "->../../devices/pci0000:00/0000:00:05.0/virtio2/block/vdb",
		"sys/devices/pci0000:00/0000:00:06.0/virtio3/net/eth0/address": "52:54:00:00:00:01\n",
		"sys/devices/pci0000:00/0000:00:06.0/virtio3/net/eth0/device":  "->../../../virtio3",
		"sys/class/net/eth0":                   "->../../devices/pci0000:00/0000:00:06.0/virtio3/net/eth0",
		"sys/devices/virtual/block/loop0/size": "0",
		"sys/class/block/loop0":                "->../../devices/virtual/block/loop0",
		"sys/class/virtio-ports/vport1p1/name": "org.idletime.test.0\n",
		"sys/class/virtio-ports/vport1p2/name": "org.idletime.agent.0\n",
	})
	vdb := wire.Device{Kernel: "vdb", Serial: "backup", PCI: "0000:00:05.0"}
	for text, want := range map[string]wire.Device{
		"vdb": vdb, "/dev/vdb": vdb,
		"eth0":             {Kernel: "eth0", MAC: "52:54:00:00:00:01", PCI: "0000:00:06.0"},
		"serial:a:b":       {Serial: "a:b"},
		"mac:52:54:AB":     {MAC: "52:54:ab"},
		"target:vda":       {Target: "vda"},
		"pci:0000:00:05.0": {PCI: "0000:00:05.0"},
	} {
		if got, err := root.Device(text); err != nil || got != want {
			t.Errorf("%s is %+v (%v), not %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"vdc", "", "..", "/dev/../etc/passwd", "loop0", "disk:x", "a/b"} {
		if got, err := root.Device(text); err == nil {
			t.Errorf("%q is taken for %+v", text, got)
		}
	}
	if got := root.Port(wire.PortName); got != root.Path("dev/vport1p2") {
		t.Errorf("the port is %q", got)
	}
	if got := root.Port("org.nobody"); got != "" {
		t.Errorf("a port that is not there is %q", got)
	}
}
