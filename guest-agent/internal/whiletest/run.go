// SPDX-License-Identifier: GPL-2.0-or-later

// Package whiletest runs a part of the agent for as long as a test lasts.
package whiletest

import (
	"context"
	"testing"
)

// Run starts `run`; at the test's end its context ends, and the test waits until it has returned.
func Run(t *testing.T, run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}
