"""Settings, schemas, plans and tables as text, mutated from a corpus: one error that costar foresaw, or an answer."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from costar_cli.config.toml import read_toml
from costar_cli.data.table.guess import guess_schema
from costar_cli.data.table.schema_file import read_schema
from costar_cli.errors import CostarError
from costar_cli.plans.untrusted import parse_json
from costar_cli.settings.resolve import from_file
from tests.campaigns.driver import Campaign
from tests.cli.cli_world import WARD

TABLE = "id,t,dose,bp,sex\n" + "".join(f"p{i // 5},{i % 5},{i % 2},{i * 7 % 13}.5,f\n" for i in range(60))
SETTINGS = (
    '[pretrain]\nepochs = 3\nlearning_rate = 1e-3\n[simulate.tumor]\ngamma = 4 # strong\n[finetune.net]\na = "b"\n'
)
PLANS = json.dumps({"origin": 3, "plans": {"a": [{"dose": 1}, {}], "b": [{"dose": "low"}, {}]}})
TOKENS = [
    "\0",
    "\ufeff",
    "\u202e",
    "'''",
    '"""',
    "[" * 40,
    "a." * 40,
    "{",
    "}",
    "=",
    ",",
    ";",
    "\n",
    "9" * 5000,
    "1e999",
    "NaN",
]
TOKENS += [
    "-0",
    "0000-01-01",
    "9999-12-31T23:59",
    "\ud7ff",
    "\r",
    "\t",
    "null",
    "true",
    "=SUM(A1)",
    "../x",
    "%s",
    "\\",
    "é",
]
MOST_S = 3.0


def _guess(path: Path) -> object:
    table = path.rename(path.with_suffix(".csv"))
    return guess_schema([table])


READERS: list[tuple[str, Callable[[Path], object]]] = [
    (SETTINGS, from_file),
    (SETTINGS, lambda path: read_toml(path, "config file")),
    (WARD.format(horizon=2, more=""), read_schema),
    (PLANS, lambda path: parse_json(path.read_bytes(), where="plan")),
]


def run(campaign: Campaign) -> None:
    """Mutate texts and read them."""
    for number in campaign.rounds():
        text, read = (TABLE, _guess) if number % 40 == 0 else campaign.random.choice(READERS)
        data = mutated(text, campaign.random)
        path = campaign.folder / "case.toml"
        path.write_bytes(data)
        start = time.process_time()
        try:
            read(path)
        except CostarError as error:
            if len(error.details) > 25:
                campaign.fail(f"{len(error.details)} messages for {data[:200]!r}")
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            campaign.fail(f"{type(error).__name__}: {error} for {data[:200]!r}")
        took = time.process_time() - start
        campaign.slowest = max(campaign.slowest, took)
        if took > MOST_S:
            campaign.fail(f"{took:.1f} s for {data[:200]!r}")


def mutated(text: str, random: Random) -> bytes:
    """Return a text with pieces cut, doubled, swapped or put in, or with single bytes changed."""
    for _ in range(random.choice([1, 1, 2, 4, 8])):
        at, end = sorted(random.randrange(len(text) + 1) for _ in range(2))
        how = random.randrange(4)
        piece = {0: "", 1: text[at:end] * 2, 2: text[at:end][::-1], 3: random.choice(TOKENS)}[how]
        text = text[:at] + piece + text[end if how < 3 else at :]
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    for _ in range(random.choice([0, 0, 0, 1, 3]) if data else 0):
        data[random.randrange(len(data))] = random.randrange(256)
    return bytes(data)
