// SPDX-License-Identifier: GPL-2.0-or-later

package dscp

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// TestKernelMarksPackets sends datagrams over the loopback and looks at what arrives. It changes nftables and cgroups, so
// it runs only where it is asked to: in a test guest, as root, with IDLETIME_TEST_CGROUP naming the cgroup v2 mount.
func TestKernelMarksPackets(t *testing.T) {
	group := makeGroup(t, inGuest(t), "dscp-test")
	for _, network := range []string{"udp4", "udp6"} {
		t.Run(network, func(t *testing.T) {
			inside := receive(t, network, group)
			expect(t, "without rules", inside(), 0)
			if err := Set([]Group{group}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = Set(nil) })
			expect(t, "socket of the group", inside(), LE<<2)
			if !Has(Table) || Has(InheritTable) {
				t.Errorf("it has the table: %v, the one that nobody wrote: %v", Has(Table), Has(InheritTable))
			}
			flush(t)
			if Has(Table) {
				t.Error("it has the table, whose rules were flushed")
			}
			if err := Set([]Group{group}); err != nil {
				t.Fatal(err)
			}
			outside := receive(t, network, Group{})
			expect(t, "socket of no group", outside(), 0)
			// Setting the same again replaces: the rules are there once, and still work.
			if err := Set([]Group{group}); err != nil {
				t.Fatal(err)
			}
			expect(t, "set again", inside(), LE<<2)
			if err := Set(nil); err != nil {
				t.Fatal(err)
			}
			expect(t, "removed", inside(), 0)
			if err := Set(nil); err != nil {
				t.Errorf("removing what is not there: %v", err)
			}
		})
	}
}

// flush is `nft flush table inet idletime`.
func flush(t *testing.T) {
	t.Helper()
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	conn.FlushTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: Table})
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
}

// inGuest gives the cgroup v2 mount, and skips where nobody asked for what changes a kernel.
func inGuest(t testing.TB) string {
	mount := os.Getenv("IDLETIME_TEST_CGROUP")
	if mount == "" {
		t.Skip("IDLETIME_TEST_CGROUP is not set: this belongs into a guest")
	}
	return mount
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
func move(t testing.TB, path string) {
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
	sender, receiver := pair(t, network, group)
	return func() int {
		t.Helper()
		class, _ := oneDatagram(t, sender, receiver)
		return class
	}
}

// want asks the kernel to tell the traffic class of what arrives.
func want(t testing.TB, conn *net.UDPConn, network string) {
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

// oneDatagram sends one, and tells the traffic class with which it arrived, and from where.
func oneDatagram(t testing.TB, sender net.Conn, receiver *net.UDPConn) (int, *net.UDPAddr) {
	t.Helper()
	if _, err := sender.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	return arrived(t, receiver)
}

func arrived(t testing.TB, receiver *net.UDPConn) (int, *net.UDPAddr) {
	t.Helper()
	_ = receiver.SetReadDeadline(time.Now().Add(10 * time.Second))
	control := make([]byte, 64)
	_, length, _, from, err := receiver.ReadMsgUDP(make([]byte, 8), control)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:length])
	if err != nil || len(messages) != 1 {
		t.Fatalf("%d control messages (%v)", len(messages), err)
	}
	return int(messages[0].Data[0]), from
}

// TestKernelAnswersInherit asks a server that marks nothing, over the loopback, and looks at what it answers.
func TestKernelAnswersInherit(t *testing.T) {
	inGuest(t)
	for _, network := range []string{"udp4", "udp6"} {
		t.Run(network, func(t *testing.T) {
			ask := asks(t, network)
			expect(t, "an answer without rules", ask(LE<<2, 0), 0)
			if err := Inherit(true); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = Inherit(false) })
			expect(t, "an answer to background", ask(LE<<2, 0), LE<<2)
			expect(t, "an answer to foreground, of the same connection", ask(0, 0), 0)
			expect(t, "an answer to background with ECN", ask(LE<<2|2, 0), LE<<2)
			expect(t, "another class of the server's own", ask(0, 0x28), 0x28)
			if err := Inherit(true); err != nil {
				t.Fatal(err)
			}
			expect(t, "set again", ask(LE<<2, 0), LE<<2)
			if err := Set(nil); err != nil {
				t.Fatal(err)
			}
			expect(t, "without a mark of our own", ask(LE<<2, 0), LE<<2)
			if err := Inherit(false); err != nil {
				t.Fatal(err)
			}
			expect(t, "removed", ask(LE<<2, 0), 0)
		})
	}
}

// TestKernelWhoAsksInheritsNothing: answers that are background leave who asked for them what it is.
func TestKernelWhoAsksInheritsNothing(t *testing.T) {
	inGuest(t)
	if err := Inherit(true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Inherit(false) })
	client, server := pair(t, "udp4", Group{})
	for range 2 {
		class, from := oneDatagram(t, client, server)
		expect(t, "a question", class, 0)
		setClass(t, server, "udp4", LE<<2)
		if _, err := server.WriteTo([]byte("x"), from); err != nil {
			t.Fatal(err)
		}
		class, _ = arrived(t, client)
		expect(t, "an answer", class, LE<<2)
	}
}

// BenchmarkKernelAnswer is a question and its answer over the loopback: two packets that are sent, and two that come.
func BenchmarkKernelAnswer(b *testing.B) {
	inGuest(b)
	client, server := pair(b, "udp4", Group{})
	for _, each := range []struct {
		name    string
		inherit bool
		class   int
	}{{"untracked", false, 0}, {"foreground", true, 0}, {"background", true, LE << 2}} {
		b.Run(each.name, func(b *testing.B) {
			if err := Inherit(each.inherit); err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = Inherit(false) })
			setClass(b, client, "udp4", each.class)
			for range b.N {
				_, from := oneDatagram(b, client, server)
				if _, err := server.WriteTo([]byte("x"), from); err != nil {
					b.Fatal(err)
				}
				arrived(b, client)
			}
		})
	}
}

// pair is a client in a group, or in none, and its server, which learn the traffic class of what arrives.
func pair(t testing.TB, network string, group Group) (client, server *net.UDPConn) {
	t.Helper()
	address := map[string]string{"udp4": "127.0.0.1:0", "udp6": "[::1]:0"}[network]
	listener, err := net.ListenPacket(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	// A socket belongs to the group in which it was made.
	move(t, group.Path)
	conn, err := net.Dial(network, listener.LocalAddr().String())
	move(t, "/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	client, server = conn.(*net.UDPConn), listener.(*net.UDPConn)
	want(t, client, network)
	want(t, server, network)
	return client, server
}

// asks makes a client and a server; the function that it gives sends a question with one traffic class, has the server answer
// with another, and tells that of the answer.
func asks(t *testing.T, network string) func(question, answer int) int {
	client, server := pair(t, network, Group{})
	return func(question, answer int) int {
		t.Helper()
		setClass(t, client, network, question)
		setClass(t, server, network, answer)
		_, from := oneDatagram(t, client, server)
		if _, err := server.WriteTo([]byte("x"), from); err != nil {
			t.Fatal(err)
		}
		class, _ := arrived(t, client)
		return class
	}
}

func setClass(t testing.TB, conn *net.UDPConn, network string, class int) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	level, option := unix.IPPROTO_IP, unix.IP_TOS
	if network == "udp6" {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
	}
	_ = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, class) })
	if err != nil {
		t.Fatal(err)
	}
}

// TestKernelTable tells whether a table of ours is there; IDLETIME_TEST_TABLE is what is expected: its name, or "!" and its name.
func TestKernelTable(t *testing.T) {
	name, absent := strings.CutPrefix(os.Getenv("IDLETIME_TEST_TABLE"), "!")
	if name == "" {
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
	found := slices.ContainsFunc(tables, func(table *nftables.Table) bool { return table.Name == name })
	if found == absent {
		t.Errorf("the table %s is there: %v", name, found)
	}
}
