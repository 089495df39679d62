// SPDX-License-Identifier: GPL-2.0-or-later

package marks

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
)

// store keeps a file for each mark on a tmpfs, so that an agent that was killed finds what it has to undo. A file costs
// the same however many marks there are. An empty path keeps nothing.
type store string

func processFile(pid int) string   { return "process-" + strconv.Itoa(pid) + ".json" }
func groupFile(path string) string { return "cgroup-" + url.PathEscape(path) + ".json" }

// save replaces a file in one step: whoever reads it finds all of it.
func (s store) save(name string, record any) error {
	if s == "" {
		return nil
	}
	data, err := json.Marshal(record)
	if err != nil {
		return err
	}
	partial := filepath.Join(string(s), ".partial")
	if err := os.WriteFile(partial, data, 0o600); err != nil {
		return err
	}
	return os.Rename(partial, filepath.Join(string(s), name))
}

func (s store) remove(name string) {
	if s != "" {
		_ = os.Remove(filepath.Join(string(s), name))
	}
}

// load calls `each` with every file that holds a JSON object; others are removed, they are of no use to anybody.
func (s store) load(kind string, each func(data []byte) error) {
	if s == "" {
		return
	}
	names, _ := filepath.Glob(filepath.Join(string(s), kind+"-*.json"))
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err == nil {
			err = each(data)
		}
		if err != nil {
			_ = os.Remove(name)
		}
	}
}
