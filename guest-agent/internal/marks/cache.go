// SPDX-License-Identifier: GPL-2.0-or-later

package marks

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"

	"idletime.org/guest-agent/internal/actuate"
	"idletime.org/guest-agent/internal/actuate/cgroup"
)

// leastAllowance is read-ahead and write-back of a few processes that read and write in a row.
const leastAllowance = 32 << 20

// allowance is how much page cache a cgroup of background work keeps: a share of the guest's memory, in bytes.
func (b *Book) allowance() int64 {
	return max(b.Root.Memory()/100*int64(b.CachePercent), leastAllowance)
}

// LimitCache keeps the page cache of what gives way within its allowance, by memory.high of each of its cgroups; returns how
// many have one. By one goroutine, once a second while there are any, and when something Marked: the limit follows what a
// cgroup holds beside the cache.
//
// The kernel frees memory while a limit is written, so the book is not locked then: what is unmarked meanwhile gets its own
// limit back at the next call.
func (b *Book) LimitCache() int {
	if b.Tree == nil {
		return 0
	}
	if b.CachePercent >= 100 {
		b.lifted.Do(b.liftCaches) // an agent that had a limit may have been killed
		return 0
	}
	defer func() { b.cacheLimits.Store(int32(len(b.limited))) }()
	allowance, wanted := b.allowance(), b.cached()
	for path, last := range b.limited {
		if _, still := wanted[path]; !still {
			_ = b.Tree.SetHigh(path, last.own)
			delete(b.limited, path)
		}
	}
	for path, own := range wanted {
		if err := b.limitCache(path, allowance, own); err != nil && !errors.Is(err, fs.ErrNotExist) {
			slog.Debug("a page cache is not limited", "cgroup", path, "error", err)
		}
	}
	return len(b.limited)
}

// Cache tells how much page cache a cgroup of background work keeps, in bytes, and how many are limited so, as of the last
// LimitCache.
func (b *Book) Cache() (bytes int64, cgroups int) {
	return b.allowance(), int(b.cacheLimits.Load())
}

// limit is the memory.high of a cgroup: its own, and what was written last, which the kernel rounds down to whole pages.
type limit struct{ own, written int64 }

// isOurs tells whether what is in force is what was written.
func (l limit) isOurs(now int64) bool {
	return now <= l.written && l.written-now < int64(os.Getpagesize())
}

// limitCache does it for one cgroup. A limit that somebody has set since the last look is its own from now on.
func (b *Book) limitCache(path string, allowance, own int64) error {
	memory, err := b.Tree.Memory(path)
	if err != nil {
		return err
	}
	now, err := b.Tree.High(path)
	if err != nil {
		return err
	}
	if last, known := b.limited[path]; known && now != own && !last.isOurs(now) {
		own = now
		b.keepLimit(path, own)
	}
	high := actuate.CacheLimit(memory, allowance, own, now)
	if high != now {
		if err := b.Tree.SetHigh(path, high); err != nil {
			return err
		}
	}
	b.limited[path] = limit{own, high}
	return nil
}

// keepLimit writes a cgroup's own limit down, so that it has it when it is unmarked.
func (b *Book) keepLimit(path string, own int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	group := b.groups[path]
	if group == nil || group.Before == nil {
		return
	}
	group.Before[cgroup.MemoryHigh] = cgroup.FormatHigh(own)
	if err := b.store.save(groupFile(path), group); err != nil {
		slog.Warn("a limit of memory is not written down", "cgroup", path, "error", err)
	}
}

// cached are the cgroups that give way, with the limit of memory that each has of its own. Context: who calls LimitCache.
func (b *Book) cached() map[string]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := map[string]int64{}
	for _, path := range b.populated() {
		found[path] = actuate.NoLimit
		if last, known := b.limited[path]; known {
			found[path] = last.own
		}
	}
	for path, group := range b.groups {
		if own, err := cgroup.ParseHigh(group.Before[cgroup.MemoryHigh]); err == nil {
			found[path] = own
		}
	}
	return found
}

// note says that something may have come that LimitCache has not seen.
func (b *Book) note() {
	select {
	case b.Marked <- struct{}{}:
	default:
	}
}

// liftCaches gives all cgroups their own limits: nobody follows what they hold any more.
func (b *Book) liftCaches() {
	for path, own := range b.cached() {
		_ = b.Tree.SetHigh(path, own)
	}
}
