// SPDX-License-Identifier: GPL-2.0-or-later

package dscp

import (
	"testing"

	"github.com/google/nftables/expr"
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
