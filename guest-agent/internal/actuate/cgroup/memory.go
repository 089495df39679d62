// SPDX-License-Identifier: GPL-2.0-or-later

package cgroup

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"idletime.org/guest-agent/internal/actuate"
)

const (
	// MemoryHigh is the file of the limit of memory.
	MemoryHigh = "memory.high"

	unlimited = "max"
)

// cached are the entries of memory.stat that the kernel can free by forgetting them.
var cached = []string{"active_file", "inactive_file", "slab_reclaimable"}

// Memory reads what a group and those below it hold. Errors: the group is gone, or has no controller for memory.
func (t Tree) Memory(group string) (memory actuate.Memory, err error) {
	current, err := os.ReadFile(t.path(group, "memory.current"))
	if err != nil {
		return memory, err
	}
	if memory.Current, err = strconv.ParseInt(firstLine(string(current)), 10, 64); err != nil {
		return memory, fmt.Errorf("memory.current of %s: %w", group, err)
	}
	data, err := os.ReadFile(t.path(group, "memory.stat"))
	if err != nil {
		return memory, err
	}
	for _, line := range strings.Split(string(data), "\n") {
		name, value, _ := strings.Cut(line, " ")
		for _, each := range cached {
			if bytes, err := strconv.ParseInt(value, 10, 64); err == nil && name == each {
				memory.Cache += bytes
			}
		}
	}
	return memory, nil
}

// Populated tells whether there are processes in a group or below it.
func (t Tree) Populated(group string) bool {
	data, err := os.ReadFile(t.path(group, "cgroup.events"))
	return err == nil && strings.Contains(string(data), "populated 1")
}

// High is the limit of memory in force: memory.high, in bytes. Errors: as Memory.
func (t Tree) High(group string) (int64, error) {
	data, err := os.ReadFile(t.path(group, MemoryHigh))
	if err != nil {
		return 0, err
	}
	return ParseHigh(firstLine(string(data)))
}

// ParseHigh reads a value of memory.high.
func ParseHigh(text string) (int64, error) {
	if text == unlimited {
		return actuate.NoLimit, nil
	}
	return strconv.ParseInt(text, 10, 64)
}

// SetHigh writes memory.high. The kernel frees what is above it first: for tens of milliseconds a hundred megabytes.
func (t Tree) SetHigh(group string, bytes int64) error {
	return write(t.path(group, MemoryHigh), FormatHigh(bytes))
}

// FormatHigh is the value of memory.high for what ParseHigh reads.
func FormatHigh(bytes int64) string {
	if bytes == actuate.NoLimit {
		return unlimited
	}
	return strconv.FormatInt(bytes, 10)
}
