// SPDX-License-Identifier: GPL-2.0-or-later

package wire

import (
	"sort"
	"strconv"
	"strings"
)

// maxQueue is the largest number of a queue that QEMU's virtio devices can have.
const maxQueue = 1023

// checkSession accepts 1 to maxSession characters.
func checkSession(session string) *Error {
	if session == "" || len(session) > maxSession {
		return Errorf(CodeMalformed, "session has %d characters: it must have 1 to %d", len(session), maxSession)
	}
	return nil
}

// CheckClass accepts the two classes that can be asked for.
func CheckClass(field, class string) *Error {
	if class != Foreground && class != Background {
		return Errorf(CodeMalformed, "%s is %q: it must be %s or %s", field, class, Foreground, Background)
	}
	return nil
}

func (s *State) check() *Error {
	if err := checkSession(s.Session); err != nil {
		return err
	}
	return s.Request.check("request")
}

func (p *Policy) check() *Error {
	if err := checkSession(p.Session); err != nil {
		return err
	}
	if p.Control != ControlNone && p.Control != ControlDemote {
		return Errorf(CodeMalformed, "control is %q: it must be %s or %s", p.Control, ControlNone, ControlDemote)
	}
	if p.Granted.Class == "" {
		p.Granted.Class = Foreground
	}
	return p.Granted.check("granted")
}

// Check refuses what a host would take for no request at all. A line that holds it has room for the rest of a state.
func (r *Request) Check() *Error {
	if problem := r.check("request"); problem != nil {
		return problem
	}
	if length := len(Encode(r)); length > maxRequest {
		return Errorf(CodeMalformed, "request has %d bytes: at most %d", length, maxRequest)
	}
	return nil
}

// check accepts a class and a bounded number of entries; what is wrong with one entry is for the host to refuse.
func (r *Request) check(field string) *Error {
	if err := CheckClass(field+".class", r.Class); err != nil {
		return err
	}
	if len(r.Queues) > maxQueueEntries {
		return Errorf(CodeMalformed, "%s.queues has %d entries: at most %d", field, len(r.Queues), maxQueueEntries)
	}
	return nil
}

// Clone is a copy that shares nothing with the original.
func (r Request) Clone() Request {
	r.Queues = append([]Queues{}, r.Queues...)
	return r
}

// With is the request with the queues of one device replaced; the empty list takes its entry out.
func (r Request) With(device Device, queues string) Request {
	kept := []Queues{}
	for _, entry := range r.Queues {
		if entry.Device != device {
			kept = append(kept, entry)
		}
	}
	if queues != "" {
		kept = append(kept, Queues{device, queues})
	}
	return Request{r.Class, kept}
}

// Covers tells whether a policy answers the state with this session and sequence, or a later one of the session.
func (p *Policy) Covers(session string, sequence uint64) bool {
	return p.Answers != nil && p.Answers.Session == session && p.Answers.Sequence >= sequence
}

// ParseQueues reads a queue list such as "2-3,6" into ascending numbers, each once.
func ParseQueues(list string) ([]int, *Error) {
	seen := map[int]bool{}
	if list == "" {
		return nil, nil
	}
	for _, part := range strings.Split(list, ",") {
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		from, err := queueNumber(list, first)
		if err != nil {
			return nil, err
		}
		to, err := queueNumber(list, last)
		if err != nil {
			return nil, err
		}
		if to < from {
			return nil, Errorf(CodeMalformed, "queue list %q: the range %s runs backwards", list, part)
		}
		for number := from; number <= to; number++ {
			seen[number] = true
		}
	}
	numbers := make([]int, 0, len(seen))
	for number := range seen {
		numbers = append(numbers, number)
	}
	sort.Ints(numbers)
	return numbers, nil
}

func queueNumber(list, text string) (int, *Error) {
	for _, each := range text {
		if each < '0' || each > '9' {
			text = ""
		}
	}
	number, err := strconv.Atoi(text)
	if err != nil || number > maxQueue {
		return 0, Errorf(CodeMalformed, "queue list %q: write numbers from 0 to %d and ranges, such as 2-3,6", list, maxQueue)
	}
	return number, nil
}
