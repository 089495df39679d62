// SPDX-License-Identifier: GPL-2.0-or-later

package dscp

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// TestKernelMarksPackets sends datagrams over the loopback and looks at what arrives. It changes nftables and cgroups, so
// it runs only where it is asked to: in a test guest, as root, with IDLETIME_TEST_CGROUP naming the cgroup v2 mount.
func TestKernelMarksPackets(t *testing.T) {
	mount := os.Getenv("IDLETIME_TEST_CGROUP")
	if mount == "" {
		t.Skip("IDLETIME_TEST_CGROUP is not set: this test belongs into a guest")
	}
	group := makeGroup(t, mount, "dscp-test")
	for _, network := range []string{"udp4", "udp6"} {
		t.Run(network, func(t *testing.T) {
			inside := receive(t, network, group)
			expect(t, "without rules", inside(), 0)
			if err := Set([]Group{group}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = Remove() })
			expect(t, "socket of the group", inside(), LE<<2)
			outside := receive(t, network, Group{})
			expect(t, "socket of no group", outside(), 0)
			// Setting the same again replaces: the rules are there once, and still work.
			if err := Set([]Group{group}); err != nil {
				t.Fatal(err)
			}
			expect(t, "set again", inside(), LE<<2)
			if err := Remove(); err != nil {
				t.Fatal(err)
			}
			expect(t, "removed", inside(), 0)
			if err := Remove(); err != nil {
				t.Errorf("removing what is not there: %v", err)
			}
		})
	}
}

func expect(t *testing.T, when string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%s: the packet has traffic class %#x, not %#x", when, got, want)
	}
}

func makeGroup(t *testing.T, mount, name string) Group {
	folder := filepath.Join(mount, name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(folder) })
	return Group{Path: "/" + name, ID: info.Sys().(*syscall.Stat_t).Ino}
}

// move puts this process into a group, or back into the root.
func move(t *testing.T, path string) {
	t.Helper()
	file := filepath.Join(os.Getenv("IDLETIME_TEST_CGROUP"), path, "cgroup.procs")
	if err := os.WriteFile(file, []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		t.Fatal(err)
	}
}

// receive makes a sender in a group and a receiver; the function that it gives sends one datagram and tells the traffic
// class with which it arrived.
func receive(t *testing.T, network string, group Group) func() int {
	t.Helper()
	address := map[string]string{"udp4": "127.0.0.1:0", "udp6": "[::1]:0"}[network]
	receiver, err := net.ListenPacket(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { receiver.Close() })
	want(t, receiver.(*net.UDPConn), network)
	// A socket belongs to the group in which it was made.
	move(t, group.Path)
	sender, err := net.Dial(network, receiver.LocalAddr().String())
	move(t, "/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sender.Close() })
	return func() int { return oneDatagram(t, sender, receiver.(*net.UDPConn)) }
}

// want asks the kernel to tell the traffic class of what arrives.
func want(t *testing.T, conn *net.UDPConn, network string) {
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	level, option := unix.IPPROTO_IP, unix.IP_RECVTOS
	if network == "udp6" {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS
	}
	_ = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, 1) })
	if err != nil {
		t.Fatal(err)
	}
}

func oneDatagram(t *testing.T, sender net.Conn, receiver *net.UDPConn) int {
	t.Helper()
	if _, err := sender.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	_ = receiver.SetReadDeadline(time.Now().Add(10 * time.Second))
	control := make([]byte, 64)
	_, length, _, _, err := receiver.ReadMsgUDP(make([]byte, 8), control)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:length])
	if err != nil || len(messages) != 1 {
		t.Fatalf("%d control messages (%v)", len(messages), err)
	}
	return int(messages[0].Data[0])
}

// TestKernelTable tells whether our table is there; IDLETIME_TEST_TABLE is what is expected, "present" or "absent".
func TestKernelTable(t *testing.T) {
	wanted := os.Getenv("IDLETIME_TEST_TABLE")
	if wanted == "" {
		t.Skip("IDLETIME_TEST_TABLE is not set: this test belongs into a guest")
	}
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		t.Fatal(err)
	}
	found := "absent"
	for _, table := range tables {
		if table.Name == Table {
			found = "present"
		}
	}
	if found != wanted {
		t.Errorf("the table is %s, not %s", found, wanted)
	}
}
