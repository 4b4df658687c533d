"""Score a network of one's own: train on the exported table, answer the exported queries, let costar score them.

    costar inspect data.h5 --export tables && python network.py tables mine.parquet
    costar score mine.parquet --data data.h5

The network reads the last value and the plan, and predicts every step of it at once with its standard deviation. It
knows nothing of costar: only polars, numpy and torch are imported.
"""

import sys
from pathlib import Path

import numpy as np
import polars as pl
import torch
from torch import nn

OUTCOME, TREATMENTS, EPOCHS = "tumour_volume", ["chemotherapy", "radiotherapy"], 60


def windows(table: pl.DataFrame, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return last values `[W]`, plans `[W,steps,2]` and what came of them `[W,steps]`, of the training subjects."""
    last, plan, target = [], [], []
    train = table.filter((pl.col("domain") == "source") & (pl.col("split") == "train"))
    for _, rows in train.group_by("subject", maintain_order=True):
        value, given = rows[OUTCOME].to_numpy(), rows.select(TREATMENTS).to_numpy()
        for t in range(len(value) - steps):
            last.append(value[t])
            plan.append(given[t : t + steps])
            target.append(value[t + 1 : t + 1 + steps])
    return np.array(last), np.array(plan), np.array(target)


def network(steps: int) -> nn.Module:
    """Return a small network from a last value and a plan to a mean and a log sd for every step."""
    return nn.Sequential(nn.Linear(1 + steps * len(TREATMENTS), 64), nn.ReLU(), nn.Linear(64, 2 * steps))


def inputs(last: np.ndarray, plan: np.ndarray) -> torch.Tensor:
    """Return what the network reads: the logarithm of the last value, and the plan."""
    columns = [np.log1p(last)[:, None], plan.reshape(len(plan), -1)]
    return torch.tensor(np.concatenate(columns, axis=1), dtype=torch.float32)


def main(folder: Path, out: Path) -> None:
    """Train a network for each length of plans, and write its answers to the queries."""
    torch.manual_seed(0)
    table, queries = (pl.read_parquet(folder / f"{name}.parquet") for name in ("table", "queries"))
    parts = []
    for _, asked in queries.group_by("set", maintain_order=True):
        steps = int(asked["step"].max())
        last, plan, target = windows(table, steps)
        scale = target.std()
        net = network(steps)
        optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
        x, y = inputs(last, plan), torch.tensor(np.log1p(target), dtype=torch.float32)
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(x)).split(256):
                mean, log_sd = net(x[rows]).chunk(2, dim=1)
                loss = (log_sd + 0.5 * ((y[rows] - mean) / log_sd.exp()) ** 2).mean()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        now = table.select("subject", pl.col("time").alias("origin"), pl.col(OUTCOME).alias("last"))
        first = asked.filter(pl.col("step") == 1).join(now, on=["subject", "origin"], how="left", maintain_order="left")
        planned = asked.select(TREATMENTS).to_numpy().reshape(len(first), steps, -1)
        with torch.no_grad():
            mean, log_sd = net(inputs(first["last"].to_numpy(), planned)).chunk(2, dim=1)
        estimate = np.expm1(mean.numpy().astype(np.float64)).clip(0, 50 * scale)
        sd = (estimate + 1) * log_sd.exp().numpy()  # of the volume, by the slope of the exponential
        keys = asked.select("set", "query", "step")
        parts.append(keys.with_columns(estimate=pl.Series(estimate.ravel()), sd=pl.Series(sd.ravel())))
    pl.concat(parts).write_parquet(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
