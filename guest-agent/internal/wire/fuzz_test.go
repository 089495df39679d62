// SPDX-License-Identifier: GPL-2.0-or-later

package wire

import (
	"bytes"
	"testing"
)

// FuzzLines: whatever comes, no line is longer than the limit, and what is read has been there.
func FuzzLines(f *testing.F) {
	f.Add([]byte("one\n\ntwo\nhalf"))
	f.Add(bytes.Repeat([]byte{'a'}, MaxLine+1))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, line := range readAll(bytes.NewReader(data)) {
			if len(line) >= MaxLine || line != "<too long>" && !bytes.Contains(data, []byte(line+"\n")) {
				t.Errorf("a line of %d bytes that was not there", len(line))
			}
		}
	})
}

// FuzzCall: every line is refused, or is a call that can be written and read again.
func FuzzCall(f *testing.F) {
	for _, line := range []string{
		`{"version": 1, "type": "mark", "id": 7, "target": {"pid": 4242}}`,
		`{"version": 1, "type": "queue", "id": 5, "device": "vdb", "queues": "2-3", "class": "background"}`,
		`{"version": 1, "type": "vm", "id": 4, "class": "background"}`, `{"version": 7, "type": "status"}`, `{`, ``,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		call, problem := ParseCall(line)
		if call == nil {
			t.Fatal("no call")
		}
		if problem != nil || call.Type == "" {
			return
		}
		if _, problem := ParseCall(Encode(call)); problem != nil {
			t.Errorf("what was read cannot be read again: %v", problem)
		}
	})
}

// FuzzPort: no line of a host crashes the agent; a state or policy that passes can be written and read again.
func FuzzPort(f *testing.F) {
	f.Add([]byte(`{"version":1,"type":"policy","session":"h","answers":null,"control":"demote","granted":{"class":"background","queues":[]}}`))
	f.Add([]byte(`{"version":1,"type":"state","session":"s","sequence":1,"request":{"class":"background","queues":[{"device":{"pci":"x"},"queues":"1"}]}}`))
	f.Add([]byte(`{"version":1,"type":"error","code":"x"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		head, problem := ParseHead(line)
		if problem != nil || parseAny(head.Type, line) != nil {
			return
		}
		if policy, problem := ParsePolicy(line); problem == nil {
			if _, problem := ParsePolicy(Encode(policy)); problem != nil {
				t.Errorf("policy: %v", problem)
			}
		}
		if state, problem := ParseState(line); problem == nil {
			if _, problem := ParseState(Encode(state)); problem != nil {
				t.Errorf("state: %v", problem)
			}
		}
	})
}

// FuzzQueues: a list that is taken has ascending numbers in range.
func FuzzQueues(f *testing.F) {
	for _, list := range []string{"2-3,6", "0", "", "1-1023", "9-1"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		numbers, problem := ParseQueues(list)
		for i, number := range numbers {
			if problem != nil || number < 0 || number > maxQueue || i > 0 && number <= numbers[i-1] {
				t.Errorf("%q gives %v", list, numbers)
			}
		}
	})
}
