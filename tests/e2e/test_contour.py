"""The disk's contours without guests: which places of a grid chance has moved."""

from __future__ import annotations

import numpy as np

from tests.report.contour import fit, misfit


def test_the_fit_nowhere_falls() -> None:
    """What falls is pooled to its mean, along the first axis; what rises stays."""
    np.testing.assert_allclose(fit(np.array([1.0, 5, 3, 4, 9])), [1, 4, 4, 4, 9])
    np.testing.assert_allclose(fit(np.array([[3.0, 1], [1, 2]])), [[2, 1], [2, 2]])


def test_places_off_the_fit_are_misfits() -> None:
    """Columns: one that fits; a foreground that loses by a longer interval; a background that wins by it; more than alone at the end."""
    foreground = np.array([[20.0, 20, 20, 20], [60, 90, 60, 90], [100, 70, 100, 120]])
    background = np.array([[50.0, 50, 30, 50], [30, 30, 50, 30], [0, 0, 0, 0]])
    assert misfit(foreground, background).tolist() == [
        [False, False, True, True], [False, True, True, True], [False, True, False, True]]
