// SPDX-License-Identifier: GPL-2.0-or-later

package actuate

import (
	"reflect"
	"testing"

	"idletime.org/guest-agent/internal/actuate/ioprio"
	"idletime.org/guest-agent/internal/actuate/sched"
)

const (
	bestEffort4 = 2<<13 | 4
	bestEffort0 = 2 << 13
	hints       = 1 << 5
)

var background = Wish{Group: "/bg"}

func TestMark(t *testing.T) {
	threads := []Thread{{TID: 10, IOPrio: 0}, {TID: 11, IOPrio: ioprio.Idle}, {TID: 12, IOPrio: bestEffort4}, {TID: 13, IOPrio: ioprio.Idle | hints}}
	for name, test := range map[string]struct {
		group string
		wish  Wish
		want  []Step
	}{
		"all":           {"/user", background, []Step{{MoveTo, 0, 0, "/bg"}, {SetIOPrio, 10, ioprio.Idle, ""}, {SetIOPrio, 12, ioprio.Idle, ""}}},
		"there already": {"/bg", background, []Step{{SetIOPrio, 10, ioprio.Idle, ""}, {SetIOPrio, 12, ioprio.Idle, ""}}},
		"not moved":     {"/user", Wish{}, []Step{{SetIOPrio, 10, ioprio.Idle, ""}, {SetIOPrio, 12, ioprio.Idle, ""}}},
	} {
		if got := Mark(threads, test.group, test.wish); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %v, not %v", name, got, test.want)
		}
	}
}

func TestMarkLeavesRealTimeAlone(t *testing.T) {
	threads := []Thread{{TID: 1, IOPrio: ioprio.Idle, Policy: sched.Other}, {TID: 2, IOPrio: ioprio.Idle, Policy: 1}}
	want := []Step{{SetPolicy, 1, sched.Idle, ""}}
	if got := Mark(threads, "", Wish{SchedIdle: true}); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}

// TestThereAndBack marks threads of all kinds, lets two more come by inheritance, and wants what was before.
func TestThereAndBack(t *testing.T) {
	before := []Thread{{TID: 10, IOPrio: bestEffort4}, {TID: 11, IOPrio: bestEffort0}, {TID: 12, IOPrio: ioprio.Idle}, {TID: 13, IOPrio: bestEffort0, Nice: -20}}
	known := map[int]Before{}
	Remember(known, 10, before)
	now := apply(before, Mark(before, "/user", background))
	now = append(now, Thread{TID: 14, IOPrio: ioprio.Idle})
	Remember(known, 10, now)
	after := apply(now, Unmark(now, "/bg", known, known[10], "/user", background))
	// 10: what nice 0 derives goes back to "none"; 11 had it by its own wish; 12 was idle; 13: derived from nice -20;
	// 14 came later and takes what the leader had.
	want := []int{ioprio.None, bestEffort0, ioprio.Idle, ioprio.None, ioprio.None}
	for i, thread := range after {
		if thread.IOPrio != want[i] {
			t.Errorf("thread %d has %#x, not %#x", thread.TID, thread.IOPrio, want[i])
		}
	}
}

// TestThreadsThatHaveEndedAreForgotten, but for the leader.
func TestThreadsThatHaveEndedAreForgotten(t *testing.T) {
	known := map[int]Before{}
	Remember(known, 10, []Thread{{TID: 10, IOPrio: bestEffort4}, {TID: 11, IOPrio: bestEffort0}})
	Remember(known, 10, []Thread{{TID: 12, IOPrio: bestEffort0}})
	if want := map[int]Before{10: {}, 12: {IOPrio: bestEffort0}}; !reflect.DeepEqual(known, want) {
		t.Errorf("%v, not %v", known, want)
	}
}

func apply(threads []Thread, steps []Step) []Thread {
	result := append([]Thread{}, threads...)
	for _, step := range steps {
		for i := range result {
			if step.Kind == SetIOPrio && result[i].TID == step.TID {
				result[i].IOPrio = step.Value
			}
		}
	}
	return result
}

func TestUnmarkLeavesWhatOthersChanged(t *testing.T) {
	threads := []Thread{{TID: 10, IOPrio: bestEffort0}}
	known := map[int]Before{10: {}}
	if steps := Unmark(threads, "/elsewhere", known, known[10], "/user", background); len(steps) != 0 {
		t.Errorf("it wants %v", steps)
	}
}

func TestBefore(t *testing.T) {
	for _, test := range []struct{ priority, nice, want int }{
		{0, 0, 0}, {4, 0, 0}, {bestEffort4, 0, 0}, {bestEffort4, 5, bestEffort4}, {2<<13 | 5, 5, 0}, {1<<13 | 3, 0, 1<<13 | 3},
		{ioprio.Idle, 0, ioprio.Idle},
	} {
		if got := ioprio.Before(test.priority, test.nice); got != test.want {
			t.Errorf("%#x at nice %d goes back to %#x, not %#x", test.priority, test.nice, got, test.want)
		}
	}
}
