"""An LSTM forecasts what a nerve cell does in the next 16 milliseconds.

The series is a recording that ships with matplotlib: the voltage across the membrane of a cell, for six seconds. While a
current flows through it the cell fires, at first in regular spikes and then in irregular ones. At each millisecond
the network (Hochreiter and Schmidhuber, Neural Computation 9, 1997) says how far the voltage will be from what it is
now, at each of the next 16; it reads the voltage and how it changes, and its state is what it knows of the past.

Two thirds of the recording are learned from, a part after that says when to stop, and the last part, where the cell
is irregular, is held out. What the forecasts are held to: that nothing changes, and the best linear forecast.

Run: python examples/lstm_series.py [--picture FILE]    (needs matplotlib, which has the data, and tqdm)
"""

import argparse
from itertools import pairwise
from typing import Any

import wengert as wg
from wengert import nn

AHEAD, PAST, WINDOW = 16, 48, 128  # milliseconds: forecast, seen at least before a forecast counts, and learned at once
PARTS = (500, 4300, 4700, 5450)  # where learning, choosing and measuring begin, and where the current ends


def load_data() -> wg.Tensor:
    """Return the voltage at each millisecond, with mean 0 and deviation 1 in the part that is learned from."""
    import numpy as np
    from matplotlib.cbook import get_sample_data

    recorded = wg.from_numpy(np.fromfile(get_sample_data("membrane.dat", asfileobj=False), np.float32))
    voltage = recorded.unflatten(0, (-1, 2)).mean(1)  # two values for each millisecond
    learned = voltage[PARTS[0] : PARTS[1]]
    return (voltage - learned.mean()) / learned.std()


class Forecaster(nn.Module):
    """At each time, the voltages at the next AHEAD times, from all until then."""

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.lstm = nn.LSTM(2, hidden, batch_first=True)
        self.head = nn.Linear(hidden, AHEAD)
        nn.init.zeros_(self.head.weight)  # at first, "nothing changes"

    def forward(self, voltage: wg.Tensor) -> wg.Tensor:
        """(batch, time) → (batch, time, AHEAD)."""
        change = wg.diff(voltage, dim=1, prepend=voltage[:, :1])
        state, _ = self.lstm(wg.stack([voltage, 3 * change], dim=-1))
        return voltage[..., None] + self.head(state)


def past_and_future(series: wg.Tensor) -> tuple[wg.Tensor, wg.Tensor]:
    """Split (batch, time) into what is known, (batch, time − AHEAD), and what follows each, (batch, …, AHEAD)."""
    return series[:, :-AHEAD], series.unfold(1, AHEAD, 1)[:, 1:]


def loss_of(model: nn.Module, series: wg.Tensor) -> wg.Tensor:
    """Return the mean square of the errors of all forecasts but the first PAST ones, which know too little."""
    past, future = past_and_future(series)
    return (model(past) - future)[:, PAST:].square().mean()


def train(
    model: nn.Module, learn: wg.Tensor, choose: wg.Tensor, steps: int, batch: int = 32
) -> list[tuple[float, ...]]:
    """Train in place on windows from anywhere; return, every 25 steps, the loss of a batch and that of ``choose``."""
    optimizer = wg.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = wg.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=steps)
    windows = learn.unfold(0, WINDOW + AHEAD, 1)

    @wg.compile(fullgraph=True)
    def step(series: wg.Tensor) -> wg.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, series)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        return loss.detach()

    best, losses = wg.utils.EarlyStopping(patience=8, keep=model), []
    with wg.utils.Progress(steps * batch, description="training") as progress:
        for i in range(1, steps + 1):
            loss = step(windows[wg.randint(0, len(windows), (batch,))])
            progress.step(batch, loss=loss)
            if i % 25 == 0:
                with wg.no_grad():
                    losses.append((loss.item(), loss_of(model, choose[None]).item()))
                progress.log(choosing=losses[-1][1])
                if best.step(losses[-1][1]):
                    break
    best.restore()
    return losses


def linear_forecast(learn: wg.Tensor, series: wg.Tensor) -> wg.Tensor:
    """Return the forecasts that are linear in the last PAST voltages and have the least squares of errors in ``learn``."""

    def known(series: wg.Tensor) -> wg.Tensor:
        past = series[:-AHEAD].unfold(0, PAST, 1)[1:]
        return wg.cat([past, wg.ones(len(past), 1)], dim=1)

    future = learn[PAST:].unfold(0, AHEAD, 1)[1:]
    return known(series) @ wg.linalg.lstsq(known(learn).double(), future.double()).solution.float()


def main(steps: int = 400, picture: str | None = None) -> dict[str, Any]:
    """Train, and compare the errors on the part that was held out."""
    wg.manual_seed(0)
    voltage = load_data()
    learn, choose, held_out = (voltage[start:end] for start, end in pairwise(PARTS))
    model = Forecaster()
    losses = train(model, learn, choose, steps)
    with wg.no_grad():
        forecast = model(held_out[None, :-AHEAD])[0, PAST:]
    now, future = (part[0, PAST:] for part in past_and_future(held_out[None]))
    forecasts = {"nothing changes": now[:, None], "linear": linear_forecast(learn, held_out), "LSTM": forecast}
    errors = {name: (f - future).square().mean().sqrt().item() for name, f in forecasts.items()}
    for name, error in errors.items():
        print(f"{name:<16} error {error:.3f} standard deviations of the voltage")
    if picture:
        draw(held_out, forecast, picture)
    return {"losses": losses, "errors": errors, "held_out": held_out, "learn": learn, "forecast": forecast}


def draw(held_out: wg.Tensor, forecast: wg.Tensor, picture: str) -> None:
    """Draw the voltage that was held out, and every tenth forecast."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    axis = figure.subplots()
    axis.plot(held_out.numpy(), color="black")
    for i in range(0, len(forecast), 10):
        axis.plot(range(PAST + i + 1, PAST + i + 1 + AHEAD), forecast[i].numpy(), color="tab:red", linewidth=0.8)
    axis.set(xlabel="milliseconds", ylabel="voltage (standard deviations)")
    figure.savefig(picture)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="An LSTM forecasts the voltage of a nerve cell.")
    parser.add_argument("--picture", metavar="FILE", help="draw the forecasts into this file")
    main(picture=parser.parse_args().picture)
