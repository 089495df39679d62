// SPDX-License-Identifier: GPL-2.0-or-later

package actuate

import "testing"

func TestCacheLimit(t *testing.T) {
	const mib = int64(1) << 20
	for name, test := range map[string]struct {
		memory         Memory
		own, now, want int64
	}{
		"nothing held yet":                   {Memory{}, NoLimit, NoLimit, 32 * mib},
		"what is not cache is held":          {Memory{100 * mib, 20 * mib}, NoLimit, NoLimit, 112 * mib},
		"a large cache goes down by steps":   {Memory{1000 * mib, 900 * mib}, NoLimit, NoLimit, 968 * mib},
		"and the last step is a short one":   {Memory{140 * mib, 40 * mib}, NoLimit, 172 * mib, 132 * mib},
		"a small change is none":             {Memory{103 * mib, 20 * mib}, NoLimit, 112 * mib, 112 * mib},
		"up":                                 {Memory{104 * mib, 20 * mib}, NoLimit, 112 * mib, 116 * mib},
		"down":                               {Memory{96 * mib, 20 * mib}, NoLimit, 112 * mib, 108 * mib},
		"its own limit is lower":             {Memory{100 * mib, 20 * mib}, 60 * mib, 60 * mib, 60 * mib},
		"its own limit is lower than a step": {Memory{1000 * mib, 900 * mib}, 500 * mib, 500 * mib, 500 * mib},
		"more cache than memory, by a race":  {Memory{10 * mib, 20 * mib}, NoLimit, NoLimit, 32 * mib},
	} {
		t.Run(name, func(t *testing.T) {
			if got := CacheLimit(test.memory, 32*mib, test.own, test.now); got != test.want {
				t.Errorf("%d MiB, not %d", got/mib, test.want/mib)
			}
		})
	}
}
