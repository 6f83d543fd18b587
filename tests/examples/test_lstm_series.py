"""The forecasts against the naive one and the linear one, which NumPy makes too."""

import numpy as np
import pytest

from examples.lstm_series import AHEAD, PAST, main


def samples(series: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return PAST values, with a 1 for the constant, and the AHEAD values that follow, for each place in a series."""
    windows = np.lib.stride_tricks.sliding_window_view(series.astype(np.float64), PAST + AHEAD)[1:]
    return np.column_stack([windows[:, :PAST], np.ones(len(windows))]), windows[:, PAST:]


def test_the_network_sees_more_coming_than_a_linear_forecast() -> None:
    found = main(steps=150)
    errors, held_out = found["errors"], found["held_out"].numpy()
    assert errors["LSTM"] < 0.75 * errors["linear"]
    assert errors["LSTM"] < 0.7 * errors["nothing changes"]

    past, future = samples(held_out)
    linear = past @ np.linalg.lstsq(*samples(found["learn"].numpy()), rcond=None)[0]
    expected = {
        "nothing changes": past[:, PAST - 1 : PAST],
        "linear": linear,
        "LSTM": found["forecast"].numpy(),
    }
    for name, forecast in expected.items():
        assert errors[name] == pytest.approx(np.sqrt(np.square(forecast - future).mean()), rel=1e-4), name
