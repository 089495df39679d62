// SPDX-License-Identifier: GPL-2.0-or-later

package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"idletime.org/guest-agent/internal/whiletest"
	"idletime.org/guest-agent/internal/wire"
)

// hostEnd plays the host: what the link sends goes to it, and what it says goes to the link.
type hostEnd struct {
	t     *testing.T
	link  *Link
	lines chan string
	now   time.Time
}

func newHostEnd(t *testing.T, file string) *hostEnd {
	end := &hostEnd{t: t, lines: make(chan string, 100), now: time.Unix(1000, 0)}
	end.link = NewLink(file, "me", wire.Program{Name: "idletime-agent", Version: "test"})
	end.link.Send = func(line []byte) error {
		end.lines <- string(line)
		return nil
	}
	end.link.Now = func() time.Time { return end.now }
	whiletest.Run(t, end.link.Run)
	return end
}

// next is the next state that the agent sends.
func (e *hostEnd) next() *wire.State {
	e.t.Helper()
	select {
	case line := <-e.lines:
		state, problem := wire.ParseState([]byte(line))
		if problem != nil {
			e.t.Fatalf("%s: %v", line, problem)
		}
		return state
	case <-time.After(20 * time.Second):
		e.t.Fatal("the agent says nothing")
		return nil
	}
}

// until reads states up to one that fulfils a condition: a state may be repeated at any time.
func (e *hostEnd) until(condition func(*wire.State) bool) *wire.State {
	e.t.Helper()
	for {
		if state := e.next(); condition(state) {
			return state
		}
	}
}

// sequence is the condition of a state with this number.
func sequence(number uint64) func(*wire.State) bool {
	return func(state *wire.State) bool { return state.Sequence == number }
}

// say sends a policy that answers a state, and grants what it asks for but for what is refused; nil answers none.
func (e *hostEnd) say(session string, state *wire.State, refused ...wire.Refusal) {
	granted := wire.Request{Class: wire.Foreground}
	if state != nil {
		granted = state.Request.Clone()
	}
	for _, each := range refused {
		if each.What == "class" {
			granted.Class = wire.Foreground
		} else {
			granted = granted.With(each.Device, "")
		}
	}
	e.tell(session, state, granted, refused...)
}

// tell is say with what is granted.
func (e *hostEnd) tell(session string, state *wire.State, granted wire.Request, refused ...wire.Refusal) {
	policy := wire.Policy{
		Head: wire.Head{Version: 1, Type: wire.TypePolicy}, Session: session, Control: wire.ControlDemote,
		Granted: granted, Refused: refused,
	}
	if state != nil {
		policy.Answers = &wire.Answers{Session: state.Session, Sequence: state.Sequence}
	}
	e.link.Line(wire.Encode(policy))
}

func (e *hostEnd) quiet() {
	e.t.Helper()
	if len(e.lines) > 0 {
		e.t.Errorf("the agent says %s", <-e.lines)
	}
}

// ask calls vm in the background of the test.
func (e *hostEnd) ask(class string) chan wire.Asked {
	answer := make(chan wire.Asked, 1)
	go func() {
		result, err := e.link.SetClass(context.Background(), class)
		if err != nil {
			result.Reason = err.Error()
		}
		answer <- result
	}()
	return answer
}

func TestStateOnConnectAndOnANewSession(t *testing.T) {
	end := newHostEnd(t, "")
	end.link.HostHere()
	state := end.next()
	if state.Session != "me" || state.Request.Class != wire.Foreground || state.Request.Queues == nil {
		t.Errorf("%+v", state)
	}
	end.say("host1", state)
	end.next() // host1 is new
	end.say("host1", state)
	end.say("host1", nil)
	end.say("host2", nil)
	end.next() // host2 is new
	end.quiet()
}

func TestGrantedAndRefused(t *testing.T) {
	end := newHostEnd(t, "")
	end.link.HostHere()
	end.say("host", end.next())
	end.next()
	answer := end.ask(wire.Background)
	state := end.next()
	if state.Sequence != 1 || state.Request.Class != wire.Background {
		t.Errorf("%+v", state)
	}
	// A policy that answers an older state is not the answer.
	end.say("host", &wire.State{Session: "me", Sequence: 0, Request: state.Request})
	end.say("host", &wire.State{Session: "another agent", Sequence: 9, Request: state.Request})
	select {
	case early := <-answer:
		t.Errorf("answered early: %+v", early)
	default:
	}
	end.say("host", state)
	if got := <-answer; !got.Answered || !got.Granted {
		t.Errorf("%+v", got)
	}
	answer = end.ask(wire.Background)
	end.say("host", end.until(sequence(2)), wire.Refusal{What: "queues", Reason: "other"}, wire.Refusal{What: "class", Reason: "the host's words"})
	if got := <-answer; !got.Answered || got.Granted || got.Reason != "the host's words" {
		t.Errorf("%+v", got)
	}
}

func TestQueuesAreToldApart(t *testing.T) {
	end := newHostEnd(t, "")
	end.link.HostHere()
	end.say("host", end.next())
	end.next()
	a, b := wire.Device{Serial: "a"}, wire.Device{Serial: "b"}
	answer := end.setQueues(context.Background(), a, "1")
	state := end.next()
	end.say("host", state, wire.Refusal{What: "queues", Device: b, Reason: "not this one"})
	if got := <-answer; !got.Granted {
		t.Errorf("%+v", got)
	}
}

// setQueues calls queue in the background of the test.
func (e *hostEnd) setQueues(ctx context.Context, device wire.Device, queues string) chan wire.Asked {
	answer := make(chan wire.Asked, 1)
	go func() {
		result, _ := e.link.SetQueues(ctx, device, queues)
		answer <- result
	}()
	return answer
}

// TestGrantedIsWhatIsInForce: the host may name a state before it has carried out what that asks for.
func TestGrantedIsWhatIsInForce(t *testing.T) {
	end := newHostEnd(t, "")
	end.link.HostHere()
	nothing := wire.Request{Class: wire.Foreground}
	device := wire.Device{Serial: "a"}
	one := nothing.With(device, "1")
	number := uint64(0)
	expect := func(answer chan wire.Asked, before, after wire.Request) {
		t.Helper()
		number++
		state := end.until(sequence(number))
		end.tell("host", state, before)
		select {
		case early := <-answer:
			t.Fatalf("request %d is answered early: %+v", number, early)
		case <-time.After(50 * time.Millisecond):
		}
		end.tell("host", state, after)
		if got := <-answer; !got.Granted {
			t.Errorf("request %d: %+v", number, got)
		}
	}
	background := wire.Request{Class: wire.Background}
	expect(end.ask(wire.Background), nothing, background)
	expect(end.ask(wire.Foreground), background, nothing)
	expect(end.setQueues(context.Background(), device, "1"), nothing, one)
	expect(end.setQueues(context.Background(), device, "1-2"), one, nothing.With(device, "1-2"))
	expect(end.setQueues(context.Background(), device, ""), one, nothing)

	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	answer := end.setQueues(ctx, device, "3")
	end.tell("host", end.until(sequence(number+1)), one)
	if got := <-answer; got.Answered || !strings.Contains(got.Reason, `does not say that it is in force (background queues "3" of a)`) {
		t.Errorf("%+v", got)
	}
}

// TestWhatCannotBeKeptIsNotAsked: who asked was told that it failed.
func TestWhatCannotBeKeptIsNotAsked(t *testing.T) {
	end := newHostEnd(t, filepath.Join(t.TempDir(), "no-folder", "agent.json"))
	if got := <-end.ask(wire.Background); got.Answered || !strings.Contains(got.Reason, "no-folder") {
		t.Errorf("%+v", got)
	}
	end.link.HostHere()
	if state := end.next(); state.Request.Class != wire.Foreground || state.Sequence != 0 {
		t.Errorf("it asks for %+v", state)
	}
}

func TestNobodyThere(t *testing.T) {
	end := newHostEnd(t, "")
	got := <-end.ask(wire.Background)
	if got.Answered || !strings.Contains(got.Reason, "the request is kept") {
		t.Errorf("%+v", got)
	}
	end.quiet()
	end.link.HostHere()
	if state := end.next(); state.Request.Class != wire.Background || state.Sequence != 1 {
		t.Errorf("the request was not kept: %+v", state)
	}
	// The host goes while somebody waits for it.
	answer := end.ask(wire.Foreground)
	end.until(sequence(2))
	end.link.HostGone("hung up")
	if got := <-answer; got.Answered || !strings.Contains(got.Reason, "hung up") {
		t.Errorf("%+v", got)
	}
}

func TestTheRequestOutlivesTheAgent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.json")
	first := newHostEnd(t, file)
	<-first.ask(wire.Background)
	first.link.HostHere()
	first.next()
	first.link.Farewell()
	if state := first.until(sequence(2)); state.Request.Class != wire.Foreground {
		t.Errorf("the last word is %+v", state)
	}
	second := newHostEnd(t, file)
	second.link.HostHere()
	if state := second.next(); state.Request.Class != wire.Background {
		t.Errorf("the next agent asks for %+v", state)
	}
}

func TestASilentHostIsNoHost(t *testing.T) {
	end := newHostEnd(t, "")
	end.link.HostHere()
	if status := end.link.Status(); status.Answers || !status.Connected {
		t.Errorf("before a policy: %+v", status)
	}
	end.say("host", end.next())
	end.now = end.now.Add(90 * time.Second)
	if status := end.link.Status(); !status.Answers {
		t.Errorf("after 90 s: %+v", status)
	}
	end.now = end.now.Add(time.Second)
	if status := end.link.Status(); status.Answers || status.Policy != nil || !strings.Contains(status.Reason, "1m31s") {
		t.Errorf("after 91 s: %+v", status)
	}
}

func TestErrorsAreRareAndNeverAnswered(t *testing.T) {
	end := newHostEnd(t, "")
	end.link.Line([]byte(`{"version":1,"type":"error","code":"malformed"}`))
	end.link.Line([]byte(`{"version":1,"type":"of a later version"}`))
	end.link.Line(nil)
	end.quiet()
	for range 10 {
		end.link.Line([]byte("{"))
		end.link.TooLong()
	}
	if got := <-end.lines; !strings.Contains(got, `"type":"error","code":"malformed"`) {
		t.Errorf("%s", got)
	}
	end.quiet()
	end.now = end.now.Add(time.Second)
	end.link.Line([]byte(`{"version":9,"type":"policy"}`))
	if got := <-end.lines; !strings.Contains(got, `"code":"version"`) || !strings.Contains(got, `"speaks":[1]`) {
		t.Errorf("%s", got)
	}
}

// TestWishesThatNoHostTakes: one queue list too many, or one that is too long, is refused; what was asked before stays in force.
func TestWishesThatNoHostTakes(t *testing.T) {
	end := newHostEnd(t, "")
	end.link.HostHere()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for i := range 64 {
		if _, err := end.link.SetQueues(ctx, wire.Device{Serial: fmt.Sprint("d", i)}, "1"); err != nil {
			t.Fatal(err)
		}
	}
	_, err := end.link.SetQueues(ctx, wire.Device{Serial: "one more"}, "1")
	if err == nil || !strings.Contains(err.Error(), "65 entries: at most 64") {
		t.Errorf("%v", err)
	}
	if _, err := end.link.SetQueues(ctx, wire.Device{Serial: "d0"}, strings.Repeat("1,", 32<<10)+"1"); err == nil {
		t.Error("a line that is too long")
	}
	state, problem := wire.ParseState(end.link.stateLine())
	if problem != nil || len(state.Request.Queues) != 64 || state.Sequence != 64 {
		t.Errorf("%v, %+v", problem, state)
	}
}
