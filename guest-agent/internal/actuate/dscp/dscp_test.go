// SPDX-License-Identifier: GPL-2.0-or-later

package dscp

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"
)

func TestLevel(t *testing.T) {
	for path, want := range map[string]uint32{"/a": 1, "/a/b": 2, "/idletime.slice/background": 2, "/a/b/c/": 3} {
		if got := (Group{Path: path}).level(); got != want {
			t.Errorf("level of %s is %d, not %d", path, got, want)
		}
	}
}

// TestHeaderBytes carries out mask and value on the first two bytes of headers.
func TestHeaderBytes(t *testing.T) {
	for _, test := range []struct {
		family       int
		before, want [2]byte
	}{
		// IPv4: DSCP is the upper six bits of the second byte. 1 << 2 = 0x04; ECN (lower two bits) stays.
		{0, [2]byte{0x45, 0x00}, [2]byte{0x45, 0x04}},
		{0, [2]byte{0x46, 0xb9}, [2]byte{0x46, 0x05}},
		// IPv6: DSCP is the lower four bits of the first and the upper two of the second. 1 = 0000 01.
		{1, [2]byte{0x60, 0x00}, [2]byte{0x60, 0x40}},
		{1, [2]byte{0x6b, 0xba}, [2]byte{0x60, 0x7a}},
	} {
		f := families[test.family]
		for i := range test.before {
			if got := test.before[i]&f.mask[i] ^ f.value[i]; got != test.want[i] {
				t.Errorf("family %d byte %d: %#x becomes %#x, not %#x", test.family, i, test.before[i], got, test.want[i])
			}
		}
	}
}

// TestOnlyIPv4HasAChecksum: writing DSCP must correct the header checksum where there is one.
func TestOnlyIPv4HasAChecksum(t *testing.T) {
	for i, want := range []expr.PayloadCsumType{expr.CsumTypeInet, expr.CsumTypeNone} {
		exprs := rule(families[i], Group{Path: "/a"})
		write := exprs[len(exprs)-1].(*expr.Payload)
		if write.CsumType != want || (write.CsumOffset == checksumOffset) != (want == expr.CsumTypeInet) {
			t.Errorf("family %d: %+v", i, write)
		}
	}
}

// TestAKernelThatMayNotLoadNFTables answers a whole transaction with one error: nobody waits for more, and there is nothing to
// remove.
func TestAKernelThatMayNotLoadNFTables(t *testing.T) {
	kept := options
	t.Cleanup(func() { options = kept })
	options = []nftables.ConnOption{nftables.WithTestDial(func(sent []netlink.Message) ([]netlink.Message, error) {
		if len(sent) == 0 {
			t.Error("an answer is awaited that never comes")
			return nil, os.ErrDeadlineExceeded
		}
		errno := unix.EINVAL
		if len(sent) > 1 {
			errno = unix.EOPNOTSUPP
		}
		sent[0].Header.Flags = 0 // those of an answer mean something else
		return nltest.Error(int(errno), sent)
	})}
	if err := errors.Join(Set(nil), Inherit(false)); err != nil {
		t.Errorf("removing what no kernel has: %v", err)
	}
	if err := Set([]Group{{Path: "/a", ID: 1}}); err == nil || !strings.Contains(err.Error(), "has no nftables") {
		t.Errorf("marking: %v", err)
	}
}

// TestAnAnswerIsNotAwaitedForEver, on a real socket to which nobody says anything.
func TestAnAnswerIsNotAwaitedForEver(t *testing.T) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		t.Skipf("no netlink here: %v", err)
	}
	defer conn.Close()
	if err := within(10 * time.Millisecond)(conn); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Receive(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it ends with %v", err)
	}
}
