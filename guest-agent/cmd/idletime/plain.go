// SPDX-License-Identifier: GPL-2.0-or-later

package main

import (
	"io"
	"strings"
	"unicode"
)

// plain writes text for people: names of cgroups and words of the host are others' choice, and must not steer a terminal.
type plain struct{ to io.Writer }

func (p plain) Write(text []byte) (int, error) {
	clean := strings.Map(func(char rune) rune {
		if char == '\n' || unicode.IsPrint(char) {
			return char
		}
		return '?'
	}, string(text))
	_, err := io.WriteString(p.to, clean)
	return len(text), err
}
