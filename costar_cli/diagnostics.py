"""Warnings, notes and findings: each has a code, and its sentence stands in `CATALOGUE` alone (docs/diagnostics.md).

Rooms decide what is true and name its code with the facts; `costar_cli/reporting/output.py` shows it.
"""

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Final, Literal, NamedTuple, Self

Severity = Literal["error", "warning", "note"]


class Entry(NamedTuple):
    """What a code says: by default how severe it is, its sentence, and what helps."""

    severity: Severity
    text: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One thing that a reader of results should know.

    `error` means that data cannot be used, `warning` that a result may be wrong, `note` that a reader of the results
    would like to know. `subject` is what it is about: a model, a plan, a variable, a part of a data set, a place in a
    file; `fix` is what helps, nothing where nothing does; `short` is shown in terminals for a long sentence.
    """

    code: str
    severity: Severity
    subject: str
    text: str
    fix: str = ""
    short: str = ""

    @classmethod
    def of(
        cls,
        code: str,
        subject: object = "",
        *,
        severity: Severity | None = None,
        fix: str | None = None,
        **facts: object,
    ) -> Self:
        """Return the diagnostic of a code, with these facts in its sentence and in what helps.

        Raises:
            KeyError: there is no such code, or its sentence needs another fact.
        """
        entry = CATALOGUE[code]
        texts = (entry.text, entry.fix, SHORT.get(code, ""))
        text, helps, short = (of.format(subject=subject, **facts) for of in texts)
        return cls(code, severity or entry.severity, str(subject), text, helps if fix is None else fix, short)

    @classmethod
    def kept(cls, warning: str, subject: str = "") -> Self:
        """Return a warning that a file keeps as text, under the code whose sentence it is; `recorded` for any other."""
        plain = cls.of("recorded", subject, warning=warning)
        for code, sentence in _sentences():
            if sentence.fullmatch(warning):
                for text in (plain.text, str(plain)):  # which of the two shows the subject depends on the code
                    if str(made := replace(plain, code=code, text=text)) == str(plain):
                        return made
        return plain

    @property
    def _leads(self) -> bool:
        """Return whether the subject stands before the sentence: unless the sentence of the code names it."""
        return bool(self.subject) and "{subject}" not in CATALOGUE.get(self.code, _UNLISTED).text

    def __str__(self) -> str:
        return "".join([f"{self.subject}: " * self._leads, self.text, f" ({self.fix})" * bool(self.fix)])

    @property
    def brief(self) -> str:
        """Return the line of terminals: where the sentence is long a short one, with the code that has the rest."""
        return f"{self.short} [{self.code}]" if self.short else str(self)

    def placed(self, place: str) -> Self:
        """Return it with a place in front, such as `crn/source/1: ` in a benchmark."""
        short = f"{place}{self.short}" if self.short else ""
        if self._leads:
            return replace(self, subject=f"{place}{self.subject}", short=short)
        return replace(self, text=f"{place}{self.text}", short=short)

    def to_json(self) -> dict[str, str]:
        """Return it as a member of a `--json` document, which has the whole sentence."""
        return {name: value for name, value in asdict(self).items() if name != "short"}


def texts_of(diagnostics: Iterable[Diagnostic], severity: Severity) -> tuple[str, ...]:
    """Return those of one severity as people read them."""
    return tuple(str(diagnostic) for diagnostic in diagnostics if diagnostic.severity == severity)


class Diagnosed:
    """A result with `diagnostics`, and these as people read them."""

    __slots__ = ()
    diagnostics: tuple[Diagnostic, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what may make the result wrong."""
        return texts_of(self.diagnostics, "warning")

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what else a reader should know."""
        return texts_of(self.diagnostics, "note")


@cache
def _sentences() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return what warnings of each code look like, those with the most words of their own first."""
    found = []
    for code, text in WARNINGS.items():
        own = re.split(r"{[^}]*}", text + (f" ({FIXES[code]})" if code in FIXES else ""))
        if sum(map(len, own)) >= LEAST_WORDS:
            pattern = re.compile("(?:[^:]*: )?" + ".+?".join(map(re.escape, own)), re.DOTALL)
            found.append((sum(map(len, own)), code, pattern))
    return tuple((code, pattern) for _, code, pattern in sorted(found, key=lambda one: (-one[0], one[1])))


LEAST_WORDS: Final = 12  # letters of a sentence by which it is known
WORSE_THAN_LAST_VALUE: Final = "worse than the last value carried forward"
_UNLISTED: Final = Entry("warning", "")  # a code of an installed package

# fmt: off
ERRORS: Final = {  # data cannot be used
    # Data: what is checked before anything is trained; the subject is a part or a place in a file
    "invalid-data": "{problem}",
    "no-two-steps": "no subject has two observed steps",
    "series-too-short": "no subject has the {steps} observed steps that the last predicted step needs",
    "outcomes-constant": "outcomes never change: {names}",
}
WARNINGS: Final = {  # a result may be wrong
    # Data: what is checked before anything is trained; the subject is a part or a place in a file
    "outcome-never-observed": "outcome '{outcome}' was never observed after a first step",
    "outcomes-constant-by-subject": "outcomes never change within a subject: {names}",
    "treatment-constant": "treatment '{treatment}' is always '{level}'",
    "weak-overlap": "overlap is weak: given '{outcome}', treatment '{treatment}' is almost never {places}",
    "outliers": "'{variable}' has {values} more than {far:,} sd from the rest: {largest:g} ({place})",
    "confounding-by-indication":
        "{treatment} was begun where {outcome} was {side} before, {before}{unit}, and its estimated effect on the "
        "next step has the same sign, {effect}{unit}: this pattern is what confounding by indication looks like, and "
        "these data cannot tell it from an effect (see `costar whatif --sensitivity`){whose}",
    # Data: what had to be assumed while they were read
    "rows-repeated": "{rows} as another in all columns: each counts in the sum of {sums}; remove any copies",
    "rows-binned":
        "{rows} became {steps:,} {axis} (`bin`): {shared:,} of them share one with others, up to {most} together, and "
        "count as {ways}",
    "events-without-number": "{events} of {n:,} whose number is missing or not finite: left out",
    "events-tied":
        "{events} at one moment of one subject with different numbers, whose order means nothing: the {which} counts",
    "ends-outside":
        "{subjects} have it outside of their series, which it does not end: before the beginning, after the window or, "
        "for {lost} of them, after the loss of follow-up",
    "intervals-odd": "{intervals}; left out or in doubt: {odd}",
    "intervals-at-once": "{intervals} whose stop is the start: a `{how}` has nothing of them",
    "intervals-overlap": "{intervals} that begin before another one of the subject ends: {effect}",
    "signal-at-discharge":
        "{share:.0f} % of the {events:,} events have the time of a discharge: they may have been known only then, and "
        "would tell models the future (as codes of billing do)",
    "static-known-later":
        "{events} of {subjects} later than the first step: not used, as a static is known from the beginning",
    "splits-unknown": "{subjects} in splits other than train, tuning and held_out left out: {names}",
    "subjects-in-files":
        "{subjects} in several files, where MEDS has each in one: {names}; their events are put together",
    "rows-close": "{rows} within a second of another row of its subject, first in {place}: each counts as one step",
    "rows-uneven":
        'rows are {least:.3g} to {most:.3g} {axis} apart, and each counts as one step (`gaps = "ignore"`): effects '
        'are per row, not per time; `gaps = "elapsed"` tells models',
    "interval-end-unused":
        "column '{subject}' is not used: if a row is an interval from `{start}` to it, an event of the row came at "
        "its end, after its treatment; say so by `stop = \"{subject}\"` in [time]",
    "event-rows-treated":
        "{treated} of {rows} that mark `{subject}` have a treatment, which is taken to come after the event",
    "outcome-filled":
        "outcome '{subject}': {values}; models see the filled-in values as inputs, but neither learn to predict them "
        "nor are scored on them",
    "steps-without-rows":
        '{names}: {most:,} of {steps:,} steps ({percent:.1f} %) have no row{until} and count as not treated; if '
        'something was given there, estimated effects may be biased towards zero. With `gaps = "elapsed"` each row is '
        'a visit, and no step is filled',
    "part-empty": "no subject is in {subject}: {needed}",
    "columns-left-out": "left out, since they never change in source-train: {names}",
    "column-without-values": "column '{subject}' has no value in source-train: missing values become 0",
    "outcome-unknown-of-subjects":
        "outcome '{subject}' was never observed of {count}: {names}; models see the training mean in its place, and "
        "neither bands nor support ratings know of it: do not rely on these answers",
    "values-outside-training":
        "column '{subject}': {values} outside training's {low:g} to {high:g}{unit}: is it in the same unit?",
    "values-far-from-training":
        "column '{subject}': {values} far outside training's {low:g} to {high:g}{unit}, or negative where it has none "
        "(first {first}): written right, and in the same unit?",
    "queries-left-out": "{queries} left out, about subjects that are not in the data set: {names}",
    "origins-short":
        "{short} of {subjects} without the {steps} steps that a question of {horizon} needs: the longest series has "
        "{longest}",
    "schema-unsure": "{doubt}",
    "price-changes-ignored": "{weeks} with a price change beyond {low:+.1%} or {high:+.1%} count as unchanged",
    "calendar-ends":
        "{sequences} to the calendar's last week: the week after is taken to have no events and average SNAP days",
    "pickle-trusted": "what is pickled in this file is made as `--trust-pickle` says, be it code",
    "hours-without-care": "{hours} missing from {table}: taken as untreated",
    "hours-without-patient": "{hours} of patients that {table} does not have: left out",
    "patients-without-hours": "{patients} without a stay-hour in {table}: left out",
    "static-values-unknown":
        "{patients} with a value of `{subject}` that MIMIC-III does not have: {values}; all columns of `{subject}` "
        "are 0 for them",
    "covariates-never-recorded": "{count} never recorded in source/train and held at 0: {names}",
    "subjects-left-out": "left out: {problem}",
    "omop-table-odd": "table {subject} has none of the columns that OMOP gives it: left out",
    "omop-rows-left-out": "table {subject}: {rows} {what} left out",
    "omop-values-unread": "table {subject}: {values} of {column} that are no numbers count as missing",
    "omop-values-limits":
        "table {subject}: {values} with an operator such as `<` are limits, not measurements, and count as if measured",
    "events-of-strangers": "{events} of {subjects} that table person does not have: left out",
    "doses-modelled":
        "{doses} whose rate or duration a model was to estimate (RATE -1, -2): each counts as given at once",
    "doses-steady": "{doses} at steady state: {earlier} earlier ones, which no row gives, stand before each",
    "values-limited": "{values} beyond a limit {became} (`--below`)",
    "values-shared": "{values} of the same {what} as another: the first counts",
    "values-after-dose":
        "{after:,} of {values:,} values were measured after a dose of the same step, and count as measured before it: "
        "effects come out too small; give shorter steps, or no `--step`, where each record is a visit",
    "values-at-dose":
        "{at:,} of {values:,} values come in the file after a dose at once of the same time, and count as measured "
        "before it: wrong for a peak, as behind an IV bolus",
    "series-unobserved": "{series} without an observation left out",
    "covariates-backward":
        "{names}: the value of a record counts before it was measured (`--carry backward`), and predictions see it",
    # Settings and files
    "plugin-left-out": "{problem}",
    "variable-ignored": "environment variable {subject} is not a setting and is ignored; {meant}",
    "settings-unused": "{subject} does not use {names}: the model is the same without",
    "other-data": "{subject} was trained on another data set ({trained}) than {than} ({here})",
    "older-version": "model `{subject}` was made by an older version of costar: {missing} not recorded; retrain it",
    "recorded": "{warning}",
    # Training
    "unseen-treatment": "{what}: its effect cannot be learned, and `whatif` refuses plans that include it",
    "never-alone":
        "no training subject received {names} without other treatments: what it does alone was not observed, and "
        "`whatif` refuses plans that give it so",
    "always-together":
        "effects of {names} cannot be separated: training subjects always received them together, and `whatif` "
        "refuses plans that give one without the rest",
    "time-as-covariate":
        "to {label} the time between visits is a covariate: effects are per visit, not per unit of time; --method "
        "{other} integrates over it{also}",
    "fit-doubtful": "{warning}",
    "worse-on-validation": f"{WORSE_THAN_LAST_VALUE} on validation ({{errors}})",
    "encoder-differs":
        "the encoder to be trained from scratch differs in shape from the workspace's pretrained one ({differences}): "
        "use the `[pretrain.encoder]` settings of `pretrain` for a fair comparison",
    "run-state-unreadable": "ignoring an unreadable run state: {problem}",
    "process-failed": "{problem}",
    "digest-differs":
        "the digest was {before} before, although seed, threads and versions are the same: please report this",
    # Models under plans, and in searches
    "not-adjusted":
        "{subject}{whose} forecasts and does not adjust for treatment that reacts to {what} inside a plan{often}: "
        "differences between plans are effects only if treatment does not react so{other}",
    "effects-too-small":
        "{subject}{whose} makes effects on binary outcomes too small, as networks do that roll out probabilities (by "
        "up to 25 % in a world with a known effect), where treatment reacts to the course inside a plan{often}: "
        "differences between plans of these outcomes are forecasts, not effects{other}",
    "weights-truncated":
        "{subject} leaves out a part of what treatment reacts to inside a plan{often}: `msm.clip` cut {percent:.1f} % "
        "of the total of MSM's weights at the last step, so that effects lean to unadjusted ones (by 8 % in a world "
        "where it cut 5 %); a smaller `msm.clip` has less bias and more variance",
    "plan-not-learned": "plan `{subject}`{what}: its effect was not learned",
    "plan-not-recorded":
        "plan `{subject}`{what}: what the training subjects of model `{model}` received is not recorded",
    "plan-stops":
        "plan `{subject}` stops {treatment} {when}, which, once started, never stopped in the training data of model "
        "`{model}`: there are no data on stopping",
    # Evaluation
    "labels-seen": "{subject} in zero-shot has seen {count} labelled target subjects",
    "limit-not-scored": "no row `{limit}` for {subject}: {problem}",
    "no-interval": "no interval on {subject}: {why} for an interval with the nominal coverage",
    "interval-uncertain": "intervals on {subject}: {why}",
    "worse-than-last-value": f"{{subject}} in {{setup}}: {WORSE_THAN_LAST_VALUE} ({{errors}})",
    "not-refuted": "{subject} cannot be refuted: {problem}",
    "job-failed": "{subject} failed: {problem}",
    "cell-worse-than-last-value": f"{{subject}}: {WORSE_THAN_LAST_VALUE} in {{setups}}",
    "few-units": "{why}",
    # Effects in a population; the subject is a plan, or what is measured
    "effect-few-followers":
        "plan `{subject}`: {followers} follow it through step {step}, who weigh as much as {effective}: from there on "
        "intervals may miss their level, and g-computation extrapolates",
    "effect-positivity":
        "plan `{subject}`: at {share} of decisions its treatment was hardly ever given (probability below {limit})",
    "effect-weights": "plan `{subject}`: the largest weight is {times} times the mean weight at step {step}",
    "effect-not-converged": "how likely treatments were comes of regressions that did not converge",
    "averages-refuted":
        "model `{subject}` says {own} for plan `{plan}` less `{reference}` at step {step}, outside the corrected "
        "interval, {lower} to {upper}: its differences are forecasts, not effects",
    "effect-no-event": "{subject}: none of {trials} trials has it within {steps} steps",
}
NOTES: Final = {  # a reader of the results would like to know
    # Data: what is checked before anything is trained; the subject is a part or a place in a file
    "some-series-short": "{short} of {subjects} too short for the last predicted step",
    "outcome-partly-observed": "outcome '{outcome}' was observed at {percent:.1f} % of the steps",
    "covariates-constant": "covariates never change: {names}",
    "statics-constant": "statics are the same for all subjects: {names}",
    "levels-never-given": "treatment '{treatment}' never takes the levels {levels}",
    "never-treated": "{untreated} of {subjects} never treated",
    "treatment-never-stops": "treatment '{treatment}' never stops once it is started",
    "rare-combinations": "{count} combinations of a level of '{treatment}' and a quintile of '{outcome}' are rare",
    # Data: what was made of rows
    "rows-dropped": "dropped {rows}",
    "rows-empty": "{rows} dropped",
    "events-unused": "{events} of codes that no column has: {names}",
    "signal-counted": "{events} of {subjects} of {n:,}: {codes}",
    "events-outside": "{events} outside of the series: before or after the window, or after the end",
    "events-without-series": "{subjects} of {n:,} left out: not {what}",
    "events-without-split": "{subjects} left out that no split has: {names}",
    "intervals-closed": "column '{subject}': intervals include their last {unit}, and end after it (`closed`)",
    "statics-unused": "{count} of the statics file about {what}s that the table does not have",
    "columns-unused": "columns that are not used: {names}",
    "domain-assumed": "{subjects} whose domain the table does not tell: taken as of the {domain}",
    "values-filled": "column '{subject}': {missing}: {carried} filled with the subject's last value, {learned} {rest}",
    "ids-repeated": "{subjects} in the training data: {names}",
    "rows-after-plans":
        "{rows} behind the one where plans begin left out: neither treatment nor outcome is known there",
    "split-by-column": "split by time, as column '{subject}' says",
    "split-by-time": "split by time: train before {val}, val from there to {test}, test from there on",
    "subjects-without-part": "{subjects} left out: no split has two steps of theirs, or `few_shot`",
    "subjects-without-domain": "{subjects} in neither domain left out",
    "few-shot-left-out": "{subjects} left out (`few_shot`)",
    "series-cut": "{subjects} cut to {steps} (`max_length`)",
    "series-short": "{subjects} with fewer than {least} left out (`min_length`)",
    "steps-filled": "{steps} without a row filled in as missing between others (`gaps`)",
    "treatments-filled": "treatment '{subject}': {counts}",
    "levels-found": "treatment '{subject}': levels {levels}, {reference} the reference (`levels`)",
    "doses-repeated":
        "{records} stand for {doses:,} doses (ADDL, SS); {later:,} more, after their subject's last record, left out",
    "infusions-overlap": "{infusions} before the end of another of the same subject: their rates add up",
    "covariates-chosen": "covariates: {names}; not used: {left} (`--covariates`)",
    "prices-left-out": "{prices} of items and stores without sales left out",
    # Training
    "source-weights-kept":
        "few-shot training does not improve on the source model in validation{whose}: the source weights are kept",
    # Questions: what else a reader of answers should know
    "series-ended": "{subjects} not asked about where the series has ended: nothing can follow",
    "averages-left-out": "some averages of {subject} are left out: {why}",
    "averages-without-interval": "averages of {subject} have no interval: {why}",
    "averages-interval": "intervals of {subject} include {kind}; resampled by {unit}",
    "averages-corrected":
        "averages of {subject} are corrected by what came of those who followed a plan, where enough do ({how}); "
        "`model_estimate` has what the model alone says",
    "averages-few-units": "groups of fewer than 20 units have no interval",
    "effect-lost":
        "{subject}: {share} of trials are lost within {steps} steps; others are weighted up for them, by how likely "
        "they were to be followed",
    "effect-as-if-no-end": "outcomes are those in a population in which nobody has {subject}",
    "effect-trees": "g-computation of {subject} by trees has no interval",
    "regret-without-truth": "regret: plans with {treatments} are left out, as the simulator has no truth of them",
    "trained-on-subject": "model `{subject}` was trained on this subject: its error may be smaller than on others",
    "trained-on-some":
        "model `{subject}` was trained on {count:,} of the {total:,} {part} subjects, possibly including this one",
    "selected-on-part":
        "model `{subject}` was selected on this subject's split: its error may be smaller than on others",
    "trained-on-earlier-steps":
        "the data are split by time: model `{subject}` may have learned from this subject's {steps}",
    "training-unknown": "whether model `{subject}` was trained on this subject is unknown",
    "validated-elsewhere":
        "model `{subject}` was validated on {others} subjects only, and this one is of the {domain}",
    "not-observed-at-origin":
        "{subject} was not observed at the forecast start, {unit} {origin} ({last}): models use the imputed value",
    "no-estimate": "{subject} has no estimate at {unit} {steps}: no training subject has it there",
    "estimates-of-survivors":
        "outcomes by model `{subject}` are those of a subject whose series goes on; how likely that is, is shown next "
        "to them (`survival`), from mean hazards over possible courses: no band is shown for it",
    "few-ends": "few training subjects of model `{subject}` ended by {ends}: that is a guess",
    "survival-uninformative":
        "hazards of model `{subject}` did no better on held-out subjects than the same hazard for all: do not choose a "
        "plan by its survival",
    "combinations-unchecked":
        "{subject} received more than {most:,} combinations of treatments; other combinations are not checked",
    "learned-as-differences":
        "`{subject}` is learned as its differences; estimates and errors are of `{subject}` itself",
    "learned-transformed":
        "`{subject}` is learned as {scale}; estimates and errors are of `{subject}` itself, and estimates are {what}",
    "negative-estimates": "some estimates of {subject} are negative, which the data never are: shown as predicted",
    # Questions: intervals, and the support of the data
    "bands-cover":
        "bands cover {shares} of new subjects on average, per {step}, for subjects like those that calibrated them, "
        "observed to the end of the horizon, under the treatments that these were given; for other plans and "
        "populations there is no guarantee: coverage rests on the model and on no hidden confounding",
    "bands-no-guarantee":
        "a band is no guarantee for one subject, and unreliable just before an absorbing event or without history",
    "bands-widened":
        "the bands of model `{subject}` are widened for plans that give each combination of treatments as often, "
        "whatever the course: calibration windows are weighted, which leaves as much as {left} {unit}s by {step}",
    "bands-uncalibrated":
        "model `{subject}` shows no band: it was made by an older version of costar, or without validation subjects; "
        "fit it again with `costar finetune --overwrite`",
    "bands-few-members":
        "model `{subject}` shows no band: too few ensemble members to estimate how far it may be off; fit it with "
        "`--members 3` or more",
    "bands-few-subjects":
        "model `{subject}` shows no band of {levels}: the {subjects} that calibrated it are too few",
    "bands-calibrated": "the bands of model `{subject}` were calibrated on {subjects}{doubts}",
    "bands-partly-missing":
        "model `{subject}` shows no band where too few of them could be asked about so many steps, or for the level",
    "differences-range":
        "limits of differences by model `{subject}` are the range of its {members} ensemble members, which has no "
        "level: members learned from the same data, and nothing measures how often such a range holds the truth",
    "differences-black-box":
        "model `{subject}` {form} a single black box: it says nothing of how far differences between plans may be off",
    "differences-binary":
        "differences of binary outcomes by model `{subject}` have no limits: nothing measures how far they may be off",
    # held-out subjects follow practice, under which such a model is as good as its bands say (BAND-7)
    "differences-by-law":
        "limits of differences by model `{subject}` take its law to be right and chance to be the same under all "
        "plans, which no held-out subject can show: at 90 % they held 90 % of true differences in simulated "
        "tumours, and 61 % in simulated ICU stays",
    "lights-mean":
        "amber (?) and red (!) mark what lies beyond 95 and 99 % of held-out windows: prediction uncertainty, and "
        "treatment overlap, which is how likely the plan was in such a state",
    "precision-not-judged":
        "prediction uncertainty is not rated: model `{subject}` does not estimate it, so that treatment overlap alone "
        "decides",
    "red-left-out": "estimates rated red are left out",
    "support-unknown":
        "{subject} cannot say whether the data support a plan: fit it again with this version of costar",
    # Rules
    "rule": "rule `{subject}`: {text}",
    "rule-on-chance": "rule `{subject}` was played on {n:,} draws of chance (seed {seed})",
    "rule-on-mean-course":
        "rule `{subject}` was played on the mean course of model `{model}`, which draws none: its spread does not "
        "reach the rule",
    "rule-on-draws":
        "rule `{subject}` was played on {n:,} courses that model `{model}` draws (seed {seed}): its estimate is their "
        "mean (g-formula)",
    "rule-lights": "support ratings of rule `{subject}` by model `{model}` are those of {common}, {few}",
    "rule-reads-draws": "rule `{subject}` reads {read}, as {models} draws it",
    "rule-reads-held":
        "rule `{subject}` reads {read}, held at the value at the forecast start by {models}: there it is not simulated",
    "natural-of-data":
        "the natural treatment in {plans} is what the data gave, then the last given: it does not react to the course "
        "under the plan (in `costar effect` and corrected averages it does)",
    "rule-truth":
        "the true rule acts on what would have happened with the subject's own noise; truths are expectations",
    # Searches
    "search-beam":
        "of {possible:,} plans of {steps} steps a beam of width {width:,} looked at the most promising: the search was "
        "not exhaustive",
    "search-all": "searched all {possible:,} plans of {steps} steps",
    "search-constrained":
        "searched all {considered:,} feasible plans of {possible:,}, of {steps} steps",
    "search-doses": "doses to choose from at each step: {doses}{others}",
    "search-left-out":
        "{plans} with a better estimate {are} left out, since the data do not support them (--unsupported)",
    "search-rare-course":
        "{whose} one that was hardly ever followed as a whole, though each step of it is supported: rated red",
    "search-chances":
        "probabilities of being best of model `{subject}` come from its {members} members, which learned from the same "
        "data: they are too high for the leading plan",
    "search-range":
        "limits of {of} are the range of the {members} members of model `{subject}`, which has no level: nothing "
        "measures how often it holds the truth, and plans are compared with the best by it",
    "search-binary":
        "differences of binary outcomes by model `{subject}` have no limits: nothing measures how far they may be "
        "off, nor which plan is clearly best",
    "search-no-intervals": "no intervals: {why}",
    "search-nonlinear":
        "the objective is not linear in the outcomes: its estimates are means over draws where the model draws",
    "search-survival":
        "outcomes are those of a subject whose series goes on; `survival` says how likely that is to the end of each "
        "plan, which the search does not weigh: a plan may look well where those who did badly are gone",
}
FIXES: Final = {  # what helps, or what follows
    "no-two-steps": "models learn from one step to the next: provide longer series",
    "series-too-short": "make the data set with a horizon of at most {longest}, or give longer series",
    "intervals-at-once": 'give `aggregate = "{instead}"`',
    "values-at-dose": "give peaks a later TIME",
    "event-rows-treated":
        "if it came before, as in tables for gfoRmula, give rows a column with their end, and name it `stop` in [time]",
    "outcome-never-observed": "it can be neither learned here nor used for selection",
    "outcome-partly-observed": "the other steps are used neither for training nor for scoring",
    "outcomes-constant": "choose outcomes that change",
    "outcomes-constant-by-subject": "effects on them cannot be learned, and bands have no width",
    "covariates-constant": "they carry no information",
    "statics-constant": "they carry no information",
    "treatment-constant": "its effect cannot be learned from these subjects",
    "levels-never-given": "predictions for them are extrapolation",
    "treatment-never-stops": "the effect of stopping it cannot be learned",
    "weak-overlap": "counterfactual estimates there are extrapolations",
    "rare-combinations": "counterfactual estimates there are extrapolations",
    "outliers": "correct or remove them",
    "effect-positivity":
        "compare plans nearer to practice, such as `odds`, or choose trials that may be treated so (`--when`)",
    "effect-weights": "compare `--truncate` .95 and 1, or estimate by `--estimator gformula`, which has no weights",
    "effect-not-converged": "leave out columns from which treatments follow",
    "effect-no-event": "ask for more steps (`times`), or leave it out (`--outcome`)",
}
# What terminals show of sentences that take more than two lines there; `--show all` shows these whole.
SHORT: Final = {
    "effect-few-followers": "plan `{subject}`: few followers from step {step} on: {effective} of equal weight",
    "effect-positivity": "plan `{subject}`: its treatment was hardly ever given at {share} of decisions",
    "effect-lost": "{subject}: {share} of trials lost within {steps} steps; others are weighted up for them",
    "estimates-of-survivors": "outcomes by `{subject}` are of a subject whose series goes on; see its survival",
    "bands-cover": "bands hold {shares} of new subjects on average, treated as usual; no hidden confounding assumed",
    "not-adjusted":
        "{subject} forecasts: differences between plans are effects only if treatment does not react inside them",
    "effects-too-small": "{subject} makes effects on binary outcomes too small: differences are forecasts",
    "natural-of-data": "the natural treatment in {plans} is what the data gave, then the last given",
    "bands-no-guarantee": "a band is no guarantee for one subject",
    "bands-widened": "bands of `{subject}` are widened for other policies: {left} {unit}s left by {step}",
    "bands-uncalibrated": "`{subject}` has no band: fit it again with `costar finetune --overwrite`",
    "differences-range": "limits of differences by `{subject}` are the range of its {members} members, without a level",
    "differences-by-law": "limits of differences by `{subject}` hold only if its law is right",
    "lights-mean": "amber (?), red (!): beyond 95, 99 % of held-out windows",
    "precision-not-judged": "prediction uncertainty of `{subject}` is not rated: treatment overlap decides alone",
    "search-chances": "probabilities of being best by {members} members of `{subject}` are too high for the best plan",
    "search-range": "limits of {of} by `{subject}` are the range of {members} members, without a level",
    "search-survival": "outcomes are of subjects whose series goes on; the search does not weigh `survival`",
}
# fmt: on
CATALOGUE: Final = (
    {code: Entry("error", text, FIXES.get(code, "")) for code, text in ERRORS.items()}
    | {code: Entry("warning", text, FIXES.get(code, "")) for code, text in WARNINGS.items()}
    | {code: Entry("note", text, FIXES.get(code, "")) for code, text in NOTES.items()}
)
