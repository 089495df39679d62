// SPDX-License-Identifier: GPL-2.0-or-later

package wire

import (
	"bytes"
	"errors"
	"io"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
)

// readAll gives the lines of a text, "<too long>" for one that was thrown away.
func readAll(in io.Reader) (lines []string) {
	reader := NewLines(in)
	for {
		line, err := reader.Next()
		switch {
		case err == nil:
			lines = append(lines, string(line))
		case errors.Is(err, ErrTooLong):
			lines = append(lines, "<too long>")
		default:
			return lines
		}
	}
}

func TestLines(t *testing.T) {
	longest := strings.Repeat("a", MaxLine-1)
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"lines":                   {"one\n\ntwo\n", []string{"one", "", "two"}},
		"a cut line is forgotten": {"one\ntw", []string{"one"}},
		"the longest":             {longest + "\nx\n", []string{longest, "x"}},
		"one byte longer":         {longest + "a\nx\n", []string{"<too long>", "x"}},
		"much longer":             {strings.Repeat("b", 10*MaxLine) + "\nx\n", []string{"<too long>", "x"}},
		"without an end":          {strings.Repeat("b", 10*MaxLine), nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, in := range []io.Reader{strings.NewReader(test.text), iotest.OneByteReader(strings.NewReader(test.text))} {
				if got := readAll(in); !reflect.DeepEqual(got, test.want) {
					t.Errorf("got %d lines %.60q, want %.60q", len(got), got, test.want)
				}
			}
		})
	}
}

func TestLinesHoldNoMoreThanTheLimit(t *testing.T) {
	reader := NewLines(io.LimitReader(zeros{}, 100*MaxLine))
	_, _ = reader.Next()
	if cap(reader.line) > 2*MaxLine {
		t.Errorf("%d bytes are held for a line of %d", cap(reader.line), 100*MaxLine)
	}
}

type zeros struct{}

func (zeros) Read(into []byte) (int, error) { return len(into), nil }

func TestQueues(t *testing.T) {
	for list, want := range map[string][]int{
		"": nil, "0": {0}, "2-3,6": {2, 3, 6}, "6,2-3": {2, 3, 6}, "1,1,0-1": {0, 1}, "1023": {1023},
	} {
		if got, err := ParseQueues(list); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q gives %v (%v), not %v", list, got, err, want)
		}
	}
	for _, list := range []string{",", "1,", "-", "1-", "-1", "3-2", "a", "1 ", "+1", "1024", "0-9999999999999999999", "1-2-3", "٣"} {
		if got, err := ParseQueues(list); err == nil {
			t.Errorf("%q is taken for %v", list, got)
		}
	}
}

func TestBadLines(t *testing.T) {
	for line, want := range map[string]string{
		`[1]`:                                          "malformed: not a JSON object",
		`"state"`:                                      "malformed: not a JSON object",
		`{"version": 1}x`:                              "malformed: not a message: invalid character 'x' after top-level value",
		`{"type": "state"}`:                            "malformed: version is missing: it must be 1",
		`{"version": 1}`:                               "malformed: type is missing",
		`{"version": "1", "type": "x"}`:                "malformed: not a message: json: cannot unmarshal string into Go struct field .version of type int",
		`{"version": 7, "type": "state"}`:              "version: version 7 is not spoken here",
		`{"version": 1, "type": "promote"}`:            `unknown-type: type "promote" is unknown: use status, mark, unmark, vm or queue`,
		`{"version": 1, "type": "mark"}`:               "malformed: target is missing: give it a pid, a cgroup or a unit",
		`{"version": 1, "type": "mark", "target": {}}`: "malformed: target must have exactly one of pid, cgroup and unit: it has 0",
		`{"version": 1, "type": "mark", "target": {"pid":1,"unit":"a"}}`:          "malformed: target must have exactly one of pid, cgroup and unit: it has 2",
		`{"version": 1, "type": "mark", "target": {"pid": -5}}`:                   "malformed: target.pid is -5: it must be positive",
		`{"version": 1, "type": "mark", "target": {"pid": 5}, "until": -1}`:       "malformed: until is -1: it must be seconds since 1970",
		`{"version": 1, "type": "vm", "class": "guest"}`:                          `malformed: class is "guest": it must be foreground or background`,
		`{"version": 1, "type": "queue", "class": "background"}`:                  "malformed: device is missing: name one, such as vdb or serial:backup",
		`{"version": 1, "type": "queue", "device": "vdb", "class": "background"}`: "malformed: queues is empty: list queues, such as 2-3,6",
	} {
		_, err := ParseCall([]byte(line))
		if err == nil || err.Code+": "+err.Message != want {
			t.Errorf("%s\n got %v\nwant %s", line, err, want)
		}
	}
}

func TestBadPolicies(t *testing.T) {
	for line, want := range map[string]string{
		`{"session": "", "control": "none"}`:                             "session has 0 characters: it must have 1 to 64",
		`{"session": "a", "control": "promote"}`:                         `control is "promote": it must be none or demote`,
		`{"session": "a", "control": "none", "granted": {"class": "x"}}`: `granted.class is "x": it must be foreground or background`,
	} {
		if _, err := ParsePolicy([]byte(line)); err == nil || err.Message != want {
			t.Errorf("%s\n got %v\nwant %s", line, err, want)
		}
	}
}

// TestExamples reads every example of PROTOCOL.md with the code that reads such lines.
func TestExamples(t *testing.T) {
	text, err := os.ReadFile("../../PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile(`(?m)^    (?:-> |<- )?(\{"version": 1, "type"(?:.|\n {5})*)$`)
	seen := map[string]int{}
	for _, found := range example.FindAllSubmatch(text, -1) {
		line := bytes.TrimSuffix(bytes.ReplaceAll(found[1], []byte("\n"), nil), []byte("   (shortened)"))
		head, problem := ParseHead(line)
		if problem == nil {
			problem = parseAny(head.Type, line)
		}
		if problem != nil {
			t.Errorf("%s\n%s: %v", line, problem.Code, problem)
		}
		seen[head.Type]++
	}
	for _, kind := range []string{TypeState, TypePolicy, TypeError, TypeReply, TypeStatus, TypeMark, TypeUnmark, TypeVM, TypeQueue} {
		if seen[kind] == 0 {
			t.Errorf("PROTOCOL.md has no example of type %s", kind)
		}
	}
}

func parseAny(kind string, line []byte) (problem *Error) {
	switch kind {
	case TypeState:
		_, problem = ParseState(line)
	case TypePolicy:
		_, problem = ParsePolicy(line)
	case TypeError, TypeReply:
		problem = decode(line, &Reply{})
	default:
		_, problem = ParseCall(line)
	}
	return problem
}

func TestRequestWith(t *testing.T) {
	a, b := Device{Serial: "a"}, Device{Serial: "b"}
	request := Request{Class: Background}.With(a, "1").With(b, "2").With(a, "3")
	want := []Queues{{b, "2"}, {a, "3"}}
	if !reflect.DeepEqual(request.Queues, want) {
		t.Errorf("got %v, want %v", request.Queues, want)
	}
	if left := request.With(a, "").With(b, ""); len(left.Queues) != 0 || left.Class != Background {
		t.Errorf("taking all back leaves %v", left)
	}
}

func TestCovers(t *testing.T) {
	policy := Policy{Answers: &Answers{"me", 5}}
	for _, test := range []struct {
		session  string
		sequence uint64
		want     bool
	}{{"me", 4, true}, {"me", 5, true}, {"me", 6, false}, {"you", 5, false}} {
		if policy.Covers(test.session, test.sequence) != test.want {
			t.Errorf("%v", test)
		}
	}
	if (&Policy{}).Covers("me", 0) {
		t.Error("a policy before any state answers one")
	}
}
