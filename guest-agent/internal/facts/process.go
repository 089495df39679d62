// SPDX-License-Identifier: GPL-2.0-or-later

package facts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unicode"
)

// flagKernelThread is PF_KTHREAD of the kernel's include/linux/sched.h.
const flagKernelThread = 0x00200000

// ErrGone says that a process has ended.
var ErrGone = errors.New("no such process")

// Process is what is known of one process. PID and Start together name it for ever: the kernel uses numbers again.
type Process struct {
	PID    int
	Parent int
	// Start is the time of its start in clock ticks after boot.
	Start uint64
	// Kernel is true for threads of the kernel.
	Kernel bool
	// UIDs are the real, effective, saved and filesystem user.
	UIDs [4]uint32
	// Comm is its name; 15 characters at most. It is its own choice: what cannot be printed has become a question mark.
	Comm string
	// Exe is the path of its program, "" where that cannot be read.
	Exe string
	// Cgroup is its path below the cgroup v2 root, "" where there is none.
	Cgroup string
}

// Owned tells whether a user owns the process wholly: real, effective and saved user.
func (p Process) Owned(uid uint32) bool {
	return p.UIDs[0] == uid && p.UIDs[1] == uid && p.UIDs[2] == uid
}

// Process reads one process. Errors: ErrGone, or what the kernel says.
func (r Root) Process(pid int) (Process, error) {
	folder := r.Path("proc", strconv.Itoa(pid))
	process, err := r.stat(pid)
	if err != nil {
		return Process{}, err
	}
	data, err := os.ReadFile(filepath.Join(folder, "status"))
	if err != nil {
		return Process{}, gone(pid, err)
	}
	process.UIDs = parseUIDs(string(data))
	process.Cgroup = r.Cgroup(pid)
	if target, err := os.Readlink(filepath.Join(folder, "exe")); err == nil {
		process.Exe = strings.TrimSuffix(target, " (deleted)")
	}
	return process, nil
}

// Start is the start of a process, by which it is told from a later one of the same number. Errors: as of Process.
func (r Root) Start(pid int) (uint64, error) {
	process, err := r.stat(pid)
	return process.Start, err
}

func (r Root) stat(pid int) (Process, error) {
	process := Process{PID: pid}
	data, err := os.ReadFile(r.Path("proc", strconv.Itoa(pid), "stat"))
	if err == nil {
		err = process.parseStat(string(data))
	}
	if err != nil {
		return Process{}, gone(pid, err)
	}
	return process, nil
}

func gone(pid int, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("process %d: %w", pid, ErrGone)
	}
	return fmt.Errorf("process %d: %w", pid, err)
}

// parseStat takes what follows the name, which stands in parentheses and may itself have any character.
func (p *Process) parseStat(text string) error {
	open, shut := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || shut < open {
		return fmt.Errorf("stat is %q", text)
	}
	p.Comm = printable(text[open+1 : shut])
	fields := strings.Fields(text[shut+1:])
	// state ppid ... flags (7th) ... starttime (20th), see proc_pid_stat(5), where state is field 3.
	if len(fields) < 20 {
		return fmt.Errorf("stat has %d fields", len(fields)+2)
	}
	// The leader may have ended before the other threads: num_threads (18th) counts it and them.
	threads, err := strconv.Atoi(fields[17])
	if fields[0] == "X" || fields[0] == "Z" && (err != nil || threads <= 1) {
		// It has ended, and only its parent has not looked yet.
		return syscall.ESRCH
	}
	parent, err1 := strconv.Atoi(fields[1])
	flags, err2 := strconv.ParseUint(fields[6], 10, 64)
	start, err3 := strconv.ParseUint(fields[19], 10, 64)
	p.Parent, p.Start, p.Kernel = parent, start, flags&flagKernelThread != 0
	return errors.Join(err1, err2, err3)
}

// printable has no character that moves a terminal's cursor or begins a line.
func printable(text string) string {
	return strings.Map(func(char rune) rune {
		if unicode.IsPrint(char) && char != unicode.ReplacementChar {
			return char
		}
		return '?'
	}, text)
}

func parseUIDs(status string) (uids [4]uint32) {
	for i := range uids {
		uids[i] = ^uint32(0)
	}
	_, rest, found := strings.Cut(status, "\nUid:")
	if !found {
		return uids
	}
	line, _, _ := strings.Cut(rest, "\n")
	for i, field := range strings.Fields(line) {
		if number, err := strconv.ParseUint(field, 10, 32); err == nil && i < len(uids) {
			uids[i] = uint32(number)
		}
	}
	return uids
}

// Cgroup is the path of a process below the cgroup v2 root, "" where there is none or the process has ended.
func (r Root) Cgroup(pid int) string {
	data, err := os.ReadFile(r.Path("proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return ""
	}
	for _, line := range strings.Split(string(data), "\n") {
		if path, found := strings.CutPrefix(line, "0::"); found {
			return strings.TrimSuffix(path, " (deleted)")
		}
	}
	return ""
}

// SameNamespace tells whether a process is in this program's namespace of a kind, such as "pid". One of which that cannot be
// read counts as in another: it has ended, or it is hidden. A kernel without namespaces of that kind has one for all.
func (r Root) SameNamespace(pid int, kind string) bool {
	own, err := os.Readlink(r.Path("proc/self/ns", kind))
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	other, otherErr := os.Readlink(r.Path("proc", strconv.Itoa(pid), "ns", kind))
	return errors.Join(err, otherErr) == nil && own == other
}

// Contained tells whether a process is in a container: it sees other cgroups, or other processes, than this program.
func (r Root) Contained(pid int) bool {
	return !r.SameNamespace(pid, "cgroup") || !r.SameNamespace(pid, "pid")
}

// Processes reads all processes, but for those that end while it reads.
func (r Root) Processes() ([]Process, error) {
	pids, err := numbers(r.Path("proc"))
	if err != nil {
		return nil, err
	}
	result := make([]Process, 0, len(pids))
	for _, pid := range pids {
		if process, err := r.Process(pid); err == nil {
			result = append(result, process)
		}
	}
	return result, nil
}

// Threads lists the threads of a process; the first one is its leader. Errors: ErrGone.
func (r Root) Threads(pid int) ([]int, error) {
	tids, err := numbers(r.Path("proc", strconv.Itoa(pid), "task"))
	if err != nil {
		return nil, gone(pid, err)
	}
	if len(tids) == 0 {
		return nil, gone(pid, fs.ErrNotExist)
	}
	return tids, nil
}

// Nice is the nice value of a thread, 0 where it cannot be read.
func (r Root) Nice(pid, tid int) int {
	data, err := os.ReadFile(r.Path("proc", strconv.Itoa(pid), "task", strconv.Itoa(tid), "stat"))
	if err != nil {
		return 0
	}
	text := string(data)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 17 {
		return 0
	}
	nice, _ := strconv.Atoi(fields[16])
	return nice
}

// numbers lists the entries of a folder whose names are numbers, ascending as the kernel gives them.
func numbers(folder string) ([]int, error) {
	file, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	names, err := file.Readdirnames(-1)
	result := make([]int, 0, len(names))
	for _, name := range names {
		if number, err := strconv.Atoi(name); err == nil && number > 0 {
			result = append(result, number)
		}
	}
	return result, err
}

// Children lists the children of a process, of all its threads; none where the kernel does not tell or it has ended.
func (r Root) Children(pid int) (children []int) {
	tids, _ := r.Threads(pid)
	for _, tid := range tids {
		data, _ := os.ReadFile(r.Path("proc", strconv.Itoa(pid), "task", strconv.Itoa(tid), "children"))
		for _, word := range strings.Fields(string(data)) {
			if child, err := strconv.Atoi(word); err == nil && child > 0 {
				children = append(children, child)
			}
		}
	}
	return children
}
