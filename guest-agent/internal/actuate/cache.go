// SPDX-License-Identifier: GPL-2.0-or-later

package actuate

// NoLimit is the value of a limit that does not limit.
const NoLimit int64 = 1<<63 - 1

// Memory is what a cgroup holds of the guest's memory, in bytes. Cache is what can be had again from where it came: pages of
// files, and what the kernel remembers of their names.
type Memory struct {
	Current, Cache int64
}

// CacheLimit is the memory.high by which a group keeps `allowance` bytes of cache beside all else that it holds. `own` is the
// limit that somebody else gave it, which is never exceeded, `now` the one in force. All are bytes.
//
// The limit goes down by an allowance a look: who writes it has to wait until the kernel has freed so much. It does not
// follow each page, and it stays above what the group cannot give back: that it grows costs cache first.
func CacheLimit(memory Memory, allowance, own, now int64) int64 {
	held := max(memory.Current-memory.Cache, 0)
	limit := min(held+allowance, own)
	if step := memory.Current - allowance; limit < step {
		limit = min(step, own)
	}
	if near := allowance / 8; now != NoLimit && limit-now < near && now-limit < near {
		return now
	}
	return limit
}
