"""Training that saves after every step, in processes that are killed: ``python -m tests.serialization.killed FILE KILLS SEED``.

Each process goes on from the file, tells step and digest of what it found there, and trains until it is killed, some steps
later, at a random moment of a step. One process imports the package and forks the others.
"""

import hashlib
import io
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from glob import glob
from typing import Any

import wengert as wg
from wengert import nn, optim
from wengert.data import DataLoader, Dataset

__all__ = ["Training", "digest"]


class Noisy(Dataset[Any]):
    """A line with noise that is drawn when a sample is made."""

    def __len__(self) -> int:
        return 22

    def __getitem__(self, i: int) -> Any:
        x = wg.randn(3) + i / 10
        return x, x.sum() + 0.1 * wg.randn(())


class Training:
    """A model with everything that it takes to go on: also where the epoch stands and the random numbers."""

    def __init__(self) -> None:
        wg.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.2), nn.Linear(4, 1))
        self.optimizer = optim.AdamW(self.model.parameters(), lr=0.01, amsgrad=True)
        self.schedule = optim.lr_scheduler.CosineAnnealingWarmRestarts(self.optimizer, 7)
        self.loader = DataLoader(Noisy(), 4, shuffle=True, generator=wg.Generator().manual_seed(1))
        self.step = 0

    def state(self) -> dict[str, Any]:
        """Return all of it."""
        return {
            "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(), "loader": self.loader.state_dict(), "random": wg.get_rng_state(),
            "step": self.step,
        }  # fmt: skip

    def load(self, state: dict[str, Any]) -> None:
        """Take it over."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.loader.load_state_dict(state["loader"])
        wg.set_rng_state(state["random"])
        self.step = state["step"]

    def run(self, after_step: Callable[[], bool]) -> None:
        """Train until ``after_step`` says that it is enough."""
        while True:
            for x, y in self.loader:
                loss = ((self.model(x)[:, 0] - y) ** 2).mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.schedule.step()
                self.step += 1
                if after_step():
                    return


def digest(state: dict[str, Any]) -> str:
    """A number for every bit of a state."""
    file = io.BytesIO()
    wg.save(state, file)
    return hashlib.sha256(file.getvalue()).hexdigest()


def _live(path: str, tell: Callable[[str], Any]) -> None:
    """One process: it never ends by itself."""
    training = Training()
    if os.path.exists(path):
        training.load(wg.load(path))
    tell(f"{training.step} {digest(training.state())}")

    def save() -> bool:
        wg.save(training.state(), path)
        tell("saved")
        return False

    training.run(save)


def main(path: str, kills: int, seed: int) -> None:
    """Print a line for each process.

    It has the step and the digest of where the process went on, whether it was killed in the middle of a save, the signal
    that it died of, and how many saves it told of. That these are up to two is drawn, and does not depend on its speed.
    """
    moments, step_time = random.Random(seed), 0.01
    for _ in range(kills):
        reader, writer = os.pipe()
        process = os.fork()
        if process == 0:
            try:
                _live(path, lambda text, to=writer: os.write(to, f"{text}\n".encode()))  # type: ignore[misc]
            except BaseException as error:
                os.write(writer, f"{error!r}\n".encode())
            os._exit(1)
        os.close(writer)
        with os.fdopen(reader) as told:
            line, saves = told.readline().strip(), 0
            for _ in range(moments.randrange(3)):
                begun = time.perf_counter()
                saves += told.readline() == "saved\n"
                step_time = time.perf_counter() - begun
            time.sleep(moments.uniform(0, step_time))
            os.kill(process, signal.SIGKILL)
            _, status = os.waitpid(process, 0)
        print(line, len(glob(f"{path}.*.partial")), os.WTERMSIG(status), saves, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
