// SPDX-License-Identifier: GPL-2.0-or-later

package marks

import (
	"errors"
	"strings"
	"testing"

	"idletime.org/guest-agent/internal/actuate/dscp"
)

// markedWorld is a world with a marked process, 42.
func markedWorld(t *testing.T) (*world, *Book) {
	w := newWorld(t)
	book := w.book()
	w.process(42, 0, 1000, "/user", 1)
	_, problem := book.Mark(1000, 42, "test")
	must(t, problem)
	return w, book
}

// TestRulesForPacketsThatSomebodyFlushedAreWrittenAgain, as `nft flush ruleset` does.
func TestRulesForPacketsThatSomebodyFlushedAreWrittenAgain(t *testing.T) {
	w, book := markedWorld(t)
	book.StartInherit(true)
	w.written = 0
	book.Prune()
	if w.written != 0 {
		t.Errorf("tables that are there are written %d times", w.written)
	}
	clear(w.tables)
	book.Prune()
	if !w.tables[dscp.Table] || !w.tables[dscp.InheritTable] || w.written != 2 {
		t.Errorf("%v, written %d times", w.tables, w.written)
	}
	if err := book.Close(); err != nil || w.tables[dscp.Table] || w.tables[dscp.InheritTable] {
		t.Errorf("%v are left (%v)", w.tables, err)
	}
}

// TestRulesForPacketsThatFailedAreTriedAgain at the next look.
func TestRulesForPacketsThatFailedAreTriedAgain(t *testing.T) {
	w, book := markedWorld(t)
	w.packetsFail = errors.New("no buffer space available")
	done, problem := book.MarkGroup("/user")
	must(t, problem)
	if !strings.Contains(strings.Join(done.Lacks, "; "), "network packets are not marked: no buffer space available") {
		t.Errorf("it lacks %q", done.Lacks)
	}
	w.packetsFail = nil
	book.Prune()
	if len(w.packets) != 2 || strings.Contains(strings.Join(book.Lacks(), "; "), "packets") {
		t.Errorf("packets of %v, it lacks %q", w.packets, book.Lacks())
	}
}
