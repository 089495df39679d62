// SPDX-License-Identifier: GPL-2.0-or-later

package agent

import (
	"context"
	"sync"

	"idletime.org/guest-agent/internal/wire"
)

const (
	// maxRoot, maxUser and maxUsers bound what root, one other user, and all others together can make the agent hold.
	// Root's are apart: whatever the others do, root gets in.
	maxRoot  = 64
	maxUser  = 16
	maxUsers = 64
)

// slots counts the connections of each user.
type slots struct {
	mu sync.Mutex
	// others is the number of connections of all users but root.
	others int
	users  map[uint32]*user
}

// user is what connections of one user share.
type user struct {
	connections int
	// turn holds one token: calls of one user are answered one at a time, so that many connections get no further than one.
	turn chan struct{}
}

func newSlots() *slots { return &slots{users: map[uint32]*user{}} }

// enter takes a slot for a connection of this user. Errors: busy.
func (s *slots) enter(uid uint32) (*user, *wire.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.users[uid]
	if known == nil {
		known = &user{turn: make(chan struct{}, 1)}
	}
	limit := maxUser
	if uid == 0 {
		limit = maxRoot
	}
	if known.connections >= limit {
		return nil, wire.Errorf(wire.CodeBusy, "%d connections of uid %d are open: that is the limit", known.connections, uid)
	}
	if uid != 0 && s.others >= maxUsers {
		return nil, wire.Errorf(wire.CodeBusy, "%d connections of users are open: that is the limit for all but root", s.others)
	}
	if uid != 0 {
		s.others++
	}
	known.connections++
	s.users[uid] = known
	return known, nil
}

// leave gives the slot back.
func (s *slots) leave(uid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if uid != 0 {
		s.others--
	}
	known := s.users[uid]
	if known.connections--; known.connections == 0 {
		delete(s.users, uid)
	}
}

// wait is for the user's turn; it ends with the context. Call `done` afterwards in any case.
func (u *user) wait(ctx context.Context) (done func()) {
	select {
	case u.turn <- struct{}{}:
		return func() { <-u.turn }
	case <-ctx.Done():
		return func() {}
	}
}
