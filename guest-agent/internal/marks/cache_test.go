// SPDX-License-Identifier: GPL-2.0-or-later

package marks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const backup = "/system.slice/backup.service"

// memory has a cgroup hold so many MiB, of which so many are page cache.
func (w *world) memory(group, current, cache string) {
	w.write("cgroup"+group+"/memory.current", current+"000000\n")
	w.write("cgroup"+group+"/cgroup.events", "populated 1\nfrozen 0\n")
	w.write("cgroup"+group+"/memory.stat", "anon 1\ninactive_file "+cache+"000000\n")
}

func (w *world) high(group string) string {
	data, _ := os.ReadFile(filepath.Join(w.root, "cgroup", group, "memory.high"))
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}

// limitedWorld has a marked unit of a guest of 1 GB: an allowance of 100 MB.
func limitedWorld(t *testing.T, own string) (*world, *Book) {
	w := newWorld(t)
	w.write("proc/meminfo", "MemTotal:        1000000 kB\nMemFree:          500000 kB\n")
	w.write("cgroup"+backup+"/cgroup.procs", "42\n")
	w.write("cgroup"+backup+"/memory.high", own+"\n")
	w.process(42, 0, 0, backup, 1)
	w.memory(backup, "500", "50")
	book := w.book()
	book.CachePercent = 10
	if _, problem := book.MarkGroup(backup); problem != nil {
		t.Fatal(problem)
	}
	return w, book
}

func TestCacheFollowsWhatIsHeld(t *testing.T) {
	w, book := limitedWorld(t, "max")
	if w.high(backup) != "max" {
		t.Errorf("%s before the first look", w.high(backup))
	}
	if got := book.LimitCache(); got != 1 || w.high(backup) != "552400000" {
		t.Errorf("%d limited, %s", got, w.high(backup))
	}
	w.memory(backup, "800", "50")
	book.LimitCache()
	if w.high(backup) != "852400000" {
		t.Errorf("%s with more memory", w.high(backup))
	}
	if _, problem := book.UnmarkGroup(backup); problem != nil || w.high(backup)[:3] != "max" {
		t.Errorf("%s afterwards (%v)", w.high(backup), problem)
	}
	// One that was unmarked while its limit was written has it until the next look.
	w.write("cgroup"+backup+"/memory.high", "123456789\n")
	if got := book.LimitCache(); got != 0 || w.high(backup)[:3] != "max" {
		t.Errorf("%d limited, %s", got, w.high(backup))
	}
}

func TestStatusKnowsTheLimit(t *testing.T) {
	_, book := limitedWorld(t, "max")
	if _, cgroups := book.Cache(); cgroups != 0 {
		t.Errorf("%d limited before the first look", cgroups)
	}
	limited := book.LimitCache()
	if bytes, cgroups := book.Cache(); bytes != book.allowance() || cgroups != limited || limited == 0 {
		t.Errorf("%d bytes, %d of %d", bytes, cgroups, limited)
	}
}

func TestItsOwnLimitIsLower(t *testing.T) {
	w, book := limitedWorld(t, "300000000")
	book.LimitCache()
	if w.high(backup) != "300000000" {
		t.Errorf("%s", w.high(backup))
	}
}

func TestCacheIsLiftedAtTheEnd(t *testing.T) {
	w, book := limitedWorld(t, "max")
	book.LimitCache()
	if err := book.Close(); err != nil || w.high(backup)[:3] != "max" {
		t.Errorf("%s (%v)", w.high(backup), err)
	}
}

func TestCacheWithoutALimit(t *testing.T) {
	w, book := limitedWorld(t, "max")
	book.CachePercent = 100
	if got := book.LimitCache(); got != 0 || w.high(backup) != "max" {
		t.Errorf("%d limited, %s", got, w.high(backup))
	}
}

// An agent with a limit was killed, and the next one is started without.
func TestCacheThatWasLeftLimited(t *testing.T) {
	w, book := limitedWorld(t, "max")
	book.LimitCache()
	if w.high(backup)[:3] == "max" {
		t.Fatal("it was not limited")
	}
	next := w.book()
	next.CachePercent = 100
	if got := next.LimitCache(); got != 0 || w.high(backup)[:3] != "max" {
		t.Errorf("%d limited, %s", got, w.high(backup))
	}
	// Whoever sets one afterwards keeps it.
	w.write("cgroup"+backup+"/memory.high", "5000")
	if next.LimitCache(); w.high(backup) != "5000" {
		t.Errorf("%s", w.high(backup))
	}
}

// A process that was moved, and what it leaves: who inherited its mark is limited as long as the group is there.
func TestCacheOfWhatWasMoved(t *testing.T) {
	w, book := limitedWorld(t, "max")
	w.process(50, 0, 0, "/user", 1)
	if _, problem := book.Mark(0, 50, "test"); problem != nil {
		t.Fatal(problem)
	}
	w.memory("/idletime.slice/background", "20", "20")
	w.write("cgroup/idletime.slice/background/memory.high", "max\n")
	w.end(50)
	book.Prune()
	if got := book.LimitCache(); got != 2 || w.high("/idletime.slice/background") != "102400000" {
		t.Errorf("%d limited, %s", got, w.high("/idletime.slice/background"))
	}
	w.write("cgroup/idletime.slice/background/cgroup.events", "populated 0\nfrozen 0\n")
	if got := book.LimitCache(); got != 1 || w.high("/idletime.slice/background")[:3] != "max" {
		t.Errorf("%d limited, %s: nobody is there any more", got, w.high("/idletime.slice/background"))
	}
}

// TestALimitThatSomebodySetsIsKept: MemoryHigh of a marked unit is the administrator's still, and the unit has it afterwards.
func TestALimitThatSomebodySetsIsKept(t *testing.T) {
	w, book := limitedWorld(t, "max")
	book.LimitCache()
	w.write("cgroup"+backup+"/memory.high", "400000000\n")
	for range 2 {
		if book.LimitCache(); w.high(backup) != "400000000" {
			t.Errorf("%s is in force", w.high(backup))
		}
	}
	// The next agent knows it, too.
	next := w.book()
	next.CachePercent = 10
	if next.LimitCache(); w.high(backup) != "400000000" {
		t.Errorf("%s is in force with the next agent", w.high(backup))
	}
	// Higher than what its work needs, it does not keep the cache within its allowance.
	w.write("cgroup"+backup+"/memory.high", "900000000\n")
	if next.LimitCache(); w.high(backup) != "552400000" {
		t.Errorf("%s is in force below 900000000", w.high(backup))
	}
	// What the kernel has made whole pages of is no news.
	w.write("cgroup"+backup+"/memory.high", "552398848\n")
	next.LimitCache()
	if _, problem := next.UnmarkGroup(backup); problem != nil || w.high(backup) != "900000000" {
		t.Errorf("%s afterwards (%v)", w.high(backup), problem)
	}
}

// TestALimitOfTheBackgroundGroupIsKept while there is somebody in it.
func TestALimitOfTheBackgroundGroupIsKept(t *testing.T) {
	const group = "/idletime.slice/background"
	w, book := limitedWorld(t, "max")
	w.memory(group, "20", "20")
	w.write("cgroup"+group+"/memory.high", "max\n")
	book.LimitCache()
	w.write("cgroup"+group+"/memory.high", "50000000\n")
	for range 2 {
		if book.LimitCache(); w.high(group) != "50000000" {
			t.Errorf("%s is in force", w.high(group))
		}
	}
}
