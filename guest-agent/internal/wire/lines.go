// SPDX-License-Identifier: GPL-2.0-or-later

package wire

import (
	"bufio"
	"errors"
	"io"
)

// ErrTooLong stands for one line that was thrown away; the next one can be read.
var ErrTooLong = errors.New("line too long")

// Lines reads lines of bounded length. It holds at most MaxLine bytes, however long a line is.
type Lines struct {
	in   *bufio.Reader
	line []byte
}

// NewLines reads from in.
func NewLines(in io.Reader) *Lines {
	return &Lines{in: bufio.NewReader(in)}
}

// Next gives the next line without its newline; the slice is good until the next call.
//
// Errors: ErrTooLong once for a line above MaxLine; else the reader's own, and then what was read of a line is forgotten.
func (l *Lines) Next() ([]byte, error) {
	l.line = l.line[:0]
	long := false
	for {
		part, err := l.in.ReadSlice('\n')
		long = long || len(l.line)+len(part) > MaxLine
		if !long {
			l.line = append(l.line, part...)
		}
		switch {
		case err == bufio.ErrBufferFull:
		case err != nil:
			return nil, err
		case long:
			return nil, ErrTooLong
		default:
			return l.line[:len(l.line)-1], nil
		}
	}
}
