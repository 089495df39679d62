// SPDX-License-Identifier: GPL-2.0-or-later

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"idletime.org/guest-agent/internal/wire"
)

const (
	// period is how often the state is repeated; the host forgets the guest after three of them.
	period = 30 * time.Second
	// silence is the time after which a host that has said nothing counts as absent.
	silence = 3 * period
	// answerTime is how long vm and queue wait for the host.
	answerTime = 5 * time.Second
	// errorGap is the least time between two error messages.
	errorGap = time.Second
)

// Link is the agent's side of the port's protocol: what it asks for, and what the host last said. It is level-triggered:
// Run repeats the state, and each policy replaces the one before.
type Link struct {
	// Send writes a line to the host.
	Send func(line []byte) error
	// Counts tells how much is marked.
	Counts func() wire.Counts
	// Now is the clock.
	Now func() time.Time

	file    string
	session string
	program wire.Program
	kick    chan struct{}

	mu       sync.Mutex
	request  wire.Request
	sequence uint64
	here     bool
	reason   string
	policy   *wire.Policy
	policyAt time.Time
	seen     string
	errorAt  time.Time
	// news is closed and made anew whenever a policy comes or the host goes.
	news chan struct{}
}

// NewLink makes the agent's end; the request survives in `file` ("" for none) until the guest reboots.
func NewLink(file, session string, program wire.Program) *Link {
	link := &Link{
		Now: time.Now, Counts: func() wire.Counts { return wire.Counts{} },
		file: file, session: session, program: program, kick: make(chan struct{}, 1), news: make(chan struct{}),
		request: wire.Request{Class: wire.Foreground, Queues: []wire.Queues{}}, reason: "the port has not been opened yet",
	}
	if data, err := os.ReadFile(file); err == nil {
		kept := wire.Request{}
		if json.Unmarshal(data, &kept) == nil && kept.Check() == nil {
			link.request = kept.Clone()
		}
	}
	return link
}

// Run sends the state when there is reason to, and every 30 s. It ends with the context.
func (l *Link) Run(ctx context.Context) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-l.kick:
		}
		if line := l.stateLine(); line != nil {
			// An error is no news: the port tells when the host goes, and the state is sent again in any case.
			_ = l.Send(line)
		}
	}
}

func (l *Link) wake() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// stateLine is the state now, nil while nobody is there.
func (l *Link) stateLine() []byte {
	counts := l.Counts()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.here {
		return nil
	}
	return wire.Encode(l.state(l.request.Clone(), &counts))
}

func (l *Link) state(request wire.Request, counts *wire.Counts) wire.State {
	return wire.State{
		Head: wire.Head{Version: wire.Version, Type: wire.TypeState}, Session: l.session, Sequence: l.sequence,
		Agent: l.program, Request: request, Marks: counts,
	}
}

// Farewell takes the request back at the host, once; it stays in the file for the next agent.
func (l *Link) Farewell() {
	l.mu.Lock()
	l.sequence++
	here := l.here
	line := wire.Encode(l.state(wire.Request{Class: wire.Foreground, Queues: []wire.Queues{}}, nil))
	l.mu.Unlock()
	if here {
		_ = l.Send(line)
	}
}

// HostHere implements port.Events.
func (l *Link) HostHere() {
	slog.Debug("the host may be there")
	l.mu.Lock()
	l.here, l.reason = true, ""
	l.mu.Unlock()
	l.wake()
}

// HostGone implements port.Events.
func (l *Link) HostGone(reason string) {
	l.mu.Lock()
	if reason != l.reason {
		slog.Info("the host is not there", "reason", reason)
	}
	l.here, l.reason, l.policy = false, reason, nil
	l.announce()
	l.mu.Unlock()
}

// announce wakes those who wait for news. Context: mu held.
func (l *Link) announce() {
	close(l.news)
	l.news = make(chan struct{})
}

// Line implements port.Events.
func (l *Link) Line(line []byte) {
	head, problem := wire.ParseHead(line)
	if problem == nil && head.Type == wire.TypePolicy {
		var policy *wire.Policy
		if policy, problem = wire.ParsePolicy(line); problem == nil {
			l.take(policy)
		}
	}
	// Errors are never answered, and unknown types belong to a later version.
	if problem != nil {
		l.complain(problem)
	}
}

// TooLong implements port.Events.
func (l *Link) TooLong() { l.complain(wire.TooLong()) }

// take makes a policy the one in force. A session that is new gets our state, once.
func (l *Link) take(policy *wire.Policy) {
	l.mu.Lock()
	fresh := policy.Session != l.seen
	if fresh {
		slog.Info("the host answers", "host", policy.Host.Name, "version", policy.Host.Version, "control", policy.Control)
	}
	l.policy, l.policyAt, l.seen = policy, l.Now(), policy.Session
	l.announce()
	l.mu.Unlock()
	if fresh {
		l.wake()
	}
}

// complain sends an error, but not more than one a second.
func (l *Link) complain(problem *wire.Error) {
	l.mu.Lock()
	now := l.Now()
	quiet := !l.errorAt.IsZero() && now.Sub(l.errorAt) < errorGap
	if !quiet {
		l.errorAt = now
	}
	l.mu.Unlock()
	if !quiet {
		_ = l.Send(wire.Encode(wire.ErrorLine{Head: wire.Head{Version: wire.Version, Type: wire.TypeError}, Error: *problem}))
	}
}

// SetClass asks for the class of the VM and waits for the answer.
func (l *Link) SetClass(ctx context.Context, class string) (wire.Asked, error) {
	return l.ask(ctx, func(request wire.Request) wire.Request {
		request.Class = class
		return request
	}, part{
		mine:  func(refusal wire.Refusal) bool { return refusal.What == "class" },
		holds: func(granted wire.Request) bool { return granted.Class == class },
		words: "class " + class + " of the VM",
	})
}

// SetQueues asks for queues of a device ("" takes the wish back) and waits for the answer.
func (l *Link) SetQueues(ctx context.Context, device wire.Device, queues string) (wire.Asked, error) {
	return l.ask(ctx, func(request wire.Request) wire.Request {
		return request.With(device, queues)
	}, part{
		mine: func(refusal wire.Refusal) bool { return refusal.What == "queues" && refusal.Device == device },
		holds: func(granted wire.Request) bool {
			i := slices.IndexFunc(granted.Queues, func(entry wire.Queues) bool { return entry.Device == device })
			if i < 0 {
				return queues == ""
			}
			return granted.Queues[i].Queues == queues
		},
		words: fmt.Sprintf("background queues %q of %s", queues, device.Name()),
	})
}

// ask changes the request, keeps it, tells the host and waits for the policy that answers it.
func (l *Link) ask(
	ctx context.Context, change func(wire.Request) wire.Request, asked part,
) (wire.Asked, error) {
	l.mu.Lock()
	sequence, err := l.replace(change(l.request.Clone()))
	l.mu.Unlock()
	if err != nil {
		return wire.Asked{}, err
	}
	l.wake()
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return l.await(ctx, sequence, asked), nil
}

// replace makes this the request, and tells in which state it comes first; an error leaves all as it was. Context: mu held.
func (l *Link) replace(request wire.Request) (uint64, error) {
	if problem := request.Check(); problem != nil {
		return 0, problem
	}
	before := l.request
	l.request = request
	if err := l.keep(); err != nil {
		// Who asked is told that it failed: it must not be asked all the same with the next state.
		l.request = before
		return 0, err
	}
	l.sequence++
	return l.sequence, nil
}

// keep writes the request down, in one step.
func (l *Link) keep() error {
	if l.file == "" {
		return nil
	}
	partial := filepath.Join(filepath.Dir(l.file), ".agent.partial")
	if err := os.WriteFile(partial, wire.Encode(l.request), 0o600); err != nil {
		return err
	}
	return os.Rename(partial, l.file)
}

const nobody = "the request is kept, and asked again when someone does"

// await waits for a policy that answers a state and says what became of one part of it. The host may tell of its policy, or of
// another part, before it has carried out this one.
func (l *Link) await(ctx context.Context, sequence uint64, asked part) wire.Asked {
	silence := "nobody answers on the host: " + nobody
	for {
		l.mu.Lock()
		policy, here, reason, news := l.policy, l.here, l.reason, l.news
		l.mu.Unlock()
		switch {
		case !here:
			return wire.Asked{Reason: "nobody answers on the host (" + reason + "): " + nobody}
		case policy != nil && policy.Covers(l.session, sequence):
			if result := asked.verdict(policy); result.Answered {
				return result
			}
			silence = "the host has the request, but does not say that it is in force (" + asked.words + "): see 'idletime status'"
		}
		select {
		case <-ctx.Done():
			return wire.Asked{Reason: silence}
		case <-news:
		}
	}
}

// part is one part of the request.
type part struct {
	// mine tells its refusal, holds whether it is in force by what is granted.
	mine  func(wire.Refusal) bool
	holds func(granted wire.Request) bool
	// words name it for people.
	words string
}

// verdict is what a policy says about it; not Answered if nothing yet.
func (p part) verdict(policy *wire.Policy) wire.Asked {
	if i := slices.IndexFunc(policy.Refused, p.mine); i >= 0 {
		return wire.Asked{Answered: true, Reason: policy.Refused[i].Reason}
	}
	granted := p.holds(policy.Granted)
	return wire.Asked{Answered: granted, Granted: granted}
}

// Status is the host's part of the agent's status.
func (l *Link) Status() wire.HostStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	host := wire.HostStatus{Connected: l.here, Request: l.request.Clone(), Reason: l.reason}
	if l.policy == nil {
		if l.here {
			host.Reason = "the channel is open on the host, and nothing has come from it yet"
		}
		return host
	}
	if age := l.Now().Sub(l.policyAt); age > silence {
		host.Reason = "the host has said nothing for " + age.Round(time.Second).String()
		return host
	}
	host.Answers, host.Policy = true, l.policy
	return host
}
