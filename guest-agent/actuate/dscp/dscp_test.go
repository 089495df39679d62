// SPDX-License-Identifier: GPL-2.0-or-later

package dscp

import "testing"

func TestLevel(t *testing.T) {
	if got := (Group{Path: "/a/b"}).level(); got != 2 {
		t.Errorf("level of /a/b is %d, not 2", got)
	}
}
