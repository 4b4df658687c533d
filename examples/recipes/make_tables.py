"""Write the invented table of a recipe, or print the truth about it.

python make_tables.py tv|people|switch|age|orders FILE
python make_tables.py tv|people|switch|age|orders --truth

tv      Weekly sales of regions. A week's sales keep three fifths of what they are above a region's usual ones, and each
        1,000 EUR on TV sell 2,000 EUR more. Regions spend more when sales are low.
people  Weekly pain of people who exercise, swim or do neither; how much either helps is each person's own, and
        `--truth` is a table of it. Pain returns to a person's usual one by three tenths a week; those in pain do more.
switch  Monthly symptoms and a drug that is started and stopped by them; a month of it lowers them by 2.
age     Yearly bone density of people who enter at any age. A drug given when density is low raises it by 1 at the age
        of 50, and by 0.1 more for each year after that. Density falls by 0.5 a year.
orders  Weekly strength of people under seven kinds of training, which add 1 to 7 kg; a fifth of what is gained is
        lost each week.
Nobody's data.
"""

import csv
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Row = tuple[object, ...]

TV_SELLS, TV_KEEPS, TV_WEEKS, TV_AHEAD = 2.0, 0.6, 60, 8
TRAININGS = ("stretch", "walk", "swim", "bike", "row", "climb", "lift")  # the first adds 1 kg, the last 7
MANY = 200_000


def odds(logit: Floats) -> Floats:
    """Return a probability."""
    return 1 / (1 + np.exp(-logit))


def tv_courses(times: float = 1) -> tuple[Floats, Floats]:
    """Return sales and spend `[region,week]`; in the last weeks TV has so many times what it had."""
    rng = np.random.default_rng(1)
    usual = rng.normal(200, 30, 60)
    sales, spent, series = usual + 20, np.zeros(60), list[tuple[Floats, Floats]]()
    factual = sales
    for week in range(TV_WEEKS):
        spent = np.clip(rng.normal(12 - 0.15 * (factual - usual - 60), 3), 0, None).round(1)
        given = spent * (times if week >= TV_WEEKS - 1 - TV_AHEAD else 1)
        series.append((sales, given))
        noise = rng.normal(0, 5, 60)
        factual = usual + TV_KEEPS * (factual - usual) + TV_SELLS * spent + noise
        sales = usual + TV_KEEPS * (sales - usual) + TV_SELLS * given + noise
    return np.stack([s for s, _ in series], 1), np.stack([g for _, g in series], 1)


def tv() -> list[Row]:
    """Return a row per region and week."""
    sales, spent = tv_courses()
    table: list[Row] = [("region", "week", "sales", "tv")]
    for i, week in np.ndindex(sales.shape):
        table.append((f"R{i + 1:02d}", week, f"{sales[i, week]:.1f}", spent[i, week]))
    return table


def tv_truth() -> Iterable[str]:
    """Yield the mean sales of the last week, as they were and with 30 % less TV in the weeks before."""
    known, less = (tv_courses(times)[0][:, -1].mean() for times in (1, 0.7))
    yield f"as it was {known:.1f}; 30 % less {less:.1f}; difference {less - known:.1f}"


def people_and_truth() -> tuple[list[Row], list[Row]]:
    """Return a row per person and week, and a row per person with the effects."""
    rng = np.random.default_rng(2)
    table: list[Row] = [("person", "week", "activity", "pain")]
    effects: list[Row] = [("person", "exercise", "swim")]
    for i in range(300):
        usual, exercise, swim = rng.normal(60, 8), rng.normal(-6, 3), rng.normal(-6, 3)
        pain = usual + rng.normal(0, 4)
        effects.append((f"P{i + 1:03d}", f"{exercise:.2f}", f"{swim:.2f}"))
        for week in range(24):
            active = rng.random() < 1 / (1 + np.exp(-(pain - 55) / 8))
            activity = ("exercise" if rng.random() < 0.5 else "swim") if active else "none"
            table.append((f"P{i + 1:03d}", week, activity, f"{pain:.1f}"))
            pain += 0.3 * (usual - pain) + {"exercise": exercise, "swim": swim, "none": 0}[activity] + rng.normal(0, 3)
    return table, effects


def people() -> list[Row]:
    """Return a row per person and week."""
    return people_and_truth()[0]


def people_truth() -> Iterable[str]:
    """Yield the effects on next week's pain, a person a line."""
    yield from (",".join(map(str, row)) for row in people_and_truth()[1])


def switch_courses(n: int, plan: Callable[[Floats], Floats] | None = None) -> list[tuple[Floats, Floats]]:
    """Return symptoms and drug of each of five months, under a plan or as practice has it."""
    rng, on = np.random.default_rng(3), np.zeros(n)
    symptoms, series = rng.normal(10, 2, n), list[tuple[Floats, Floats]]()
    for _ in range(5):
        practice = (rng.random(n) < odds(0.25 * (symptoms - 8) + 0.5 * on - 0.4)).astype(float)
        on = practice if plan is None else plan(symptoms)
        series.append((symptoms, on))
        symptoms = 10 + 0.7 * (symptoms - 10) - 2 * on + rng.normal(0, 1.5, n)
    return series


def switch() -> list[Row]:
    """Return a row per patient and month."""
    series = switch_courses(2_000)
    table: list[Row] = [("patient", "month", "symptoms", "drug")]
    for i in range(2_000):
        table += [(i + 1, month, f"{symptoms[i]:.1f}", int(on[i])) for month, (symptoms, on) in enumerate(series)]
    return table


def switch_truth() -> Iterable[str]:
    """Yield mean symptoms after four months of each plan."""
    plans: dict[str, Callable[[Floats], Floats]] = {
        "never": np.zeros_like,
        "always": np.ones_like,
        "above 9": lambda symptoms: (symptoms.round(1) > 9).astype(float),
    }
    for name, plan in plans.items():
        yield f"{name} {switch_courses(MANY, plan)[-1][0].mean():.2f}"


def age() -> list[Row]:
    """Return a row per person and year of age."""
    rng = np.random.default_rng(4)
    table: list[Row] = [("person", "age", "density", "drug")]
    for i in range(5_000):
        first, density = int(rng.integers(40, 66)), 100 + rng.normal(0, 6)
        for year in range(first, first + 10):
            drug = rng.random() < 1 / (1 + np.exp((density - 101) / 15))
            table.append((i + 1, year, f"{density:.1f}", int(drug)))
            density += -0.5 + drug * (1 + 0.1 * (year - 50)) + rng.normal(0, 1.5)
    return table


def age_truth() -> Iterable[str]:
    """Yield what three years of the drug add from the ages of 50 and 65 on."""
    for first in (50, 65):
        yield f"from {first} on {sum(1 + 0.1 * (year - 50) for year in range(first, first + 3)):.1f}"


def orders() -> list[Row]:
    """Return a row per person and week."""
    rng = np.random.default_rng(5)
    table: list[Row] = [("person", "week", "training", "strength")]
    for i in range(150):
        usual = rng.normal(50, 8)
        strength = usual + rng.normal(10, 5)
        for week in range(30):
            lean = 0.03 * (strength - usual - 15) * np.arange(-3, 4)  # the stronger train harder
            share = np.append(np.exp(lean), 2)
            k = rng.choice(8, p=share / share.sum())
            table.append((f"P{i + 1:03d}", week, [*TRAININGS, "none"][k], f"{strength:.1f}"))
            strength += 0.2 * (usual - strength) + (k + 1) * (k < 7) + rng.normal(0, 1.5)
    return table


def orders_truth() -> Iterable[str]:
    """Yield what the weakest first and the strongest first add by the end of seven weeks, and on average over them."""
    for order in (TRAININGS, TRAININGS[::-1]):
        course, gained = list[float](), 0.0
        for kind in order:
            gained = 0.8 * gained + TRAININGS.index(kind) + 1
            course.append(gained)
        yield f"{order[0]} first: {course[-1]:.2f} at the end, {np.mean(course):.2f} on average"


WORLDS: dict[str, tuple[Callable[[], list[Row]], Callable[[], Iterable[str]]]] = {
    "tv": (tv, tv_truth),
    "people": (people, people_truth),
    "switch": (switch, switch_truth),
    "age": (age, age_truth),
    "orders": (orders, orders_truth),
}

if __name__ == "__main__":
    name, target = sys.argv[1:]
    rows, truth = WORLDS[name]
    if target == "--truth":
        sys.stdout.writelines(f"{line}\n" for line in truth())
    else:
        with Path(target).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows())
