// SPDX-License-Identifier: GPL-2.0-or-later

package marks

import (
	"errors"
	"io/fs"
	"log/slog"

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
	for path, own := range b.limited {
		if _, still := wanted[path]; !still {
			_ = b.Tree.SetHigh(path, own)
			delete(b.limited, path)
		}
	}
	for path, own := range wanted {
		err := b.limitCache(path, allowance, own)
		if err == nil {
			b.limited[path] = own
		} else if !errors.Is(err, fs.ErrNotExist) {
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

func (b *Book) limitCache(path string, allowance, own int64) error {
	memory, err := b.Tree.Memory(path)
	if err != nil {
		return err
	}
	now, err := b.Tree.High(path)
	if err != nil {
		return err
	}
	if limit := actuate.CacheLimit(memory, allowance, own, now); limit != now {
		return b.Tree.SetHigh(path, limit)
	}
	return nil
}

// cached are the cgroups that give way, with the limit of memory that each has of its own.
func (b *Book) cached() map[string]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := map[string]int64{}
	for _, path := range b.populated() {
		found[path] = actuate.NoLimit
	}
	for path, group := range b.groups {
		if own, err := cgroup.ParseHigh(group.Before["memory.high"]); err == nil {
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
