// SPDX-License-Identifier: GPL-2.0-or-later

//go:build tools

// Package tools names the programs that check the agent, so that go.mod and go.sum pin them.
package tools

import _ "honnef.co/go/tools/cmd/staticcheck"
