
"use strict";
(() => {
  const content = JSON.parse(document.getElementById("content").textContent);
  const about = content.about, frozen = content.frozen || null;
  const token = new URLSearchParams(location.search).get("token") || "";
  const LETTERS = "ABCD", SVG = "http://www.w3.org/2000/svg", MINUS = "\u2212";
  const $ = (id) => document.getElementById(id);
  const rows = about.treatments.length;
  const idle = about.treatments.map((one) => one.idle || 0);
  const state = { subject: about.first, origin: null, outcome: 0, step: null, plans: [], active: 1, answer: null, command: "" };
  const saved = new Map();  // of a page by itself: the answer's plans by what they give

  // Everything that is shown is text: no name of the data is ever read as HTML.
  function make(tag, set = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(set)) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (name in node && !name.includes("-")) node[name] = value;
      else node.setAttribute(name, value);
    }
    node.append(...children.filter((child) => child !== null));
    return node;
  }
  function draw(tag, set, parent, text) {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(set)) node.setAttribute(name, value);
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  }
  const fill = (node, ...children) => node.replaceChildren(...children.filter((child) => child !== null));

  // ---- questions ----
  class Refusal extends Error {
    constructor(report) { super(report.problem); this.report = report; }
  }
  async function ask(name, question, kind = "json") {
    let reply;
    try {
      reply = await fetch(`/api/${name}`, {
        method: "POST", headers: { "Content-Type": "application/json", "X-Costar-Token": token }, body: JSON.stringify(question),
      });
    } catch {
      throw new Refusal({ problem: "costar has stopped", fix: "start `costar explore` again and open the address that it prints" });
    }
    if (!reply.ok) throw new Refusal(await reply.json().catch(() => ({ problem: `the server answers ${reply.status}` })));
    return reply[kind]();
  }
  function refuse(error) {
    const shown = error.report || { problem: String(error.message || error) };
    const more = [...(shown.details || []), shown.fix].filter(Boolean);
    fill($("problem"), `${shown.problem[0].toUpperCase()}${shown.problem.slice(1)}.`, ...more.map((text) => make("small", {}, text)));
    $("problem").hidden = false;
    $("shown").classList.add("stale");
  }
  const horizon = () => frozen ? state.plans[0].values.length : about.models.find((one) => one.label === $("model").value).horizon;
  const none = (steps) => Array.from({ length: steps }, () => [...idle]);
  const keyOf = (values) => values.map((row) => row.join(",")).join(";");
  function stepOf(row) {
    const step = {};
    about.treatments.forEach((one, i) => {
      if (row[i] === idle[i]) return;
      step[one.key || one.name] = one.levels ? (one.on_off ? 1 : one.levels[row[i]]) : row[i];
    });
    return step;
  }
  function question() {
    const plans = {};
    for (const plan of state.plans) plans[plan.name] = plan.values.map(stepOf);
    return { model: $("model").value, subject: state.subject, origin: state.origin, plans, unsupported: $("unsupported").checked };
  }
  let timer = 0, asking = false, again = false;
  function changed({ at = 0 } = {}) {
    clearTimeout(timer);
    timer = setTimeout(answer, at);
  }
  async function answer() {
    if (asking) { again = true; return; }
    asking = true;
    const late = setTimeout(() => $("shown").classList.add("stale"), 150);
    try {
      show(frozen ? thaw() : await ask("answer", question()));
    } catch (error) {
      refuse(error);
    }
    clearTimeout(late);
    asking = false;
    document.body.dataset.answers = Number(document.body.dataset.answers || 0) + 1;
    if (again) { again = false; answer(); }
  }
  function thaw() {
    const whole = frozen[state.subject];
    const plans = state.plans.map((plan) => ({ ...saved.get(keyOf(plan.values)), name: plan.name }));
    return { ...whole, plans, recorded: [] };
  }

  // ---- numbers and words ----
  const outcomeOf = () => about.outcomes[state.outcome];
  const factor = () => outcomeOf().binary ? 100 : 1;
  const unit = () => outcomeOf().binary ? "%" : outcomeOf().unit;
  const percent = (share) => `${+(100 * share).toPrecision(3)}\u00a0%`;
  const scaled = (value) => value === null || value === undefined ? null : factor() * value;
  function digits() {
    let most = 0;
    for (const plan of state.answer.plans) for (const x of plan.outcomes[state.outcome].estimate) most = Math.max(most, Math.abs(scaled(x) || 0));
    return most > 0 ? Math.min(9, Math.max(0, 2 - Math.floor(Math.log10(most)))) : 2;
  }
  function number(value, sign = false) {
    const places = digits(), text = Math.abs(value).toFixed(places);
    const minus = value < 0 && Number(text) !== 0;
    return (minus ? MINUS : sign && Number(text) !== 0 ? "+" : "") + text;
  }
  const range = (low, high, sign) => low === null || high === null ? "" : `${number(scaled(low), sign)} to ${number(scaled(high), sign)}`;
  const when = (step) => `${about.step} ${state.answer.when[step - state.answer.first] ?? step}`;
  const at = (plan, step) => step - state.answer.origin - 1 < plan.outcomes[state.outcome].estimate.length ? step - state.answer.origin - 1 : null;
  const RATINGS = { green: "Well supported", amber: "Rare in the data", red: "Not supported by the data" };
  function verdict({ support }) {
    if (!support) return { text: "Support is unknown: fit the model again", tone: "quiet" };
    return { text: `${SIGNS[support.worst]} ${RATINGS[support.worst]} ${support.when}`.trim(), tone: `${support.worst}-text`, reason: support.reason };
  }
  // Limits of a difference: those without a level are not worded like those that have one.
  const isRange = () => state.answer.difference_kinds[state.outcome].startsWith("range");
  const SIGNS = { green: "●", amber: "○", red: "✕" };

  function show(given) {
    state.answer = given;
    state.origin = given.origin;
    state.command = given.command || "";
    const last = given.origin + Math.max(...given.plans.map((plan) => plan.values.length));
    if (state.step === null || state.step <= given.origin || state.step > last) state.step = last;
    $("problem").hidden = true;
    $("shown").classList.remove("stale");
    $("origin").max = $("origin-slide").max = given.length - 1;
    $("origin").value = $("origin-slide").value = given.origin;
    const date = given.when[given.origin - given.first];
    $("origin-date").textContent = `${date && date !== String(given.origin) ? `${date}; ` : ""}recorded up to ${about.step} ${given.length - 1}`;
    $("part").textContent = given.part;
    state.plans.forEach((_, i) => paint(i));
    for (const button of document.querySelectorAll(".recorded")) button.disabled = !(given.recorded || []).length;
    fill($("warnings"), ...given.warnings.map((text) => make("li", {}, text)));
    fill($("notes"), ...given.notes.map((text) => make("li", {}, text)));
    $("notes-box").hidden = !given.notes.length;
    $("command").textContent = state.command;
    read();
  }
  function read() {
    sentence();
    chart();
    table();
    document.querySelectorAll(".plan-words").forEach((node, i) => {
      const plan = state.answer.plans[i];
      if (!plan) return fill(node);
      const o = plan.outcomes[state.outcome], h = at(plan, state.step), value = h === null ? null : o.estimate[h];
      const d = i && o.difference && value !== null ? o.difference[h] : null;
      const result = value === null ? null : make("b", {}, `${number(scaled(value))}${unit() ? ` ${unit()}` : ""}`);
      fill(node, `${plan.words}; ${when(state.step)}: `, result || "no estimate", d === null || d === undefined ? null : ` (${number(scaled(d), true)})`, plan.support ? make("span", { className: `${plan.support.worst}-text` }, ` ${SIGNS[plan.support.worst]}`) : null);
    });
  }
  function sentence() {
    const { answer: given, step } = state, i = Math.min(state.active, given.plans.length - 1), plan = given.plans[i];
    const found = plan.outcomes[state.outcome], h = at(plan, step);
    const parts = [], strong = (text) => make("b", {}, text), end = unit() ? ` ${unit()}` : "";
    if (h === null || found.estimate[h] === null) parts.push(`${plan.name} has no estimate on ${when(step)}.`);
    else {
      const limits = range(found.lower[h], found.upper[h]);
      parts.push(`${about.step === "day" ? "On" : "At"} ${when(step)}, ${outcomeOf().label} would be `, strong(`${number(scaled(found.estimate[h]))}${end}`), ` under ${plan.name}`);
      if (limits) parts.push(` (${percent(given.level)} band ${limits})`);
      const difference = i && found.difference ? found.difference[h] : null;
      if (difference !== null && difference !== undefined) {
        const [low, high] = isRange() ? [null, null] : [found.difference_lower[h], found.difference_upper[h]], other = given.plans[0].name;
        const gap = Math.abs(scaled(difference)), way = difference < 0 ? "lower" : "higher";
        if (Number(gap.toFixed(digits())) === 0) parts.push(`, the same as under ${other}`);
        else parts.push(": ", strong(`${number(gap)}${end} ${way}`), ` than under ${other}`);
        if (range(low, high)) parts.push(` (${range(low, high, true)}${low < 0 && high > 0 ? "; this includes no difference" : ""})`);
      }
      parts.push(".");
    }
    fill($("headline"), ...parts);
    const rating = verdict(plan);
    fill($("verdict"), make("span", { className: rating.tone }, rating.text), rating.reason ? `: ${rating.reason}.` : ".");
  }

  // ---- the chart ----
  function ticks(low, high, most) {
    const rough = (high - low) / most || 1, power = 10 ** Math.floor(Math.log10(rough));
    const gap = [1, 2, 5, 10].map((x) => x * power).find((x) => x >= rough);
    const found = [];
    for (let x = Math.ceil(low / gap) * gap; x <= high + gap * 1e-9; x += gap) found.push(Math.abs(x) < gap * 1e-9 ? 0 : x);
    return { found, places: Math.max(0, -Math.floor(Math.log10(gap) + 1e-9)) };
  }
  let plot = null;  // from pixels to steps
  function chart() {
    const given = state.answer, box = $("chart"), width = Math.max(280, box.clientWidth || 600), height = width < 480 ? 270 : 350;
    const left = 52, right = 30, top = 12, bottom = 44, y0 = state.outcome;
    const last = given.origin + Math.max(...given.plans.map((plan) => plan.values.length));
    const from = Math.max(given.first, last - Math.max(3 * (last - given.origin), width < 480 ? 14 : 24));
    const known = given.history[y0].slice(from - given.first).map(scaled);
    const start = known[known.length - 1];
    const values = known.filter((x) => x !== null), lines = [...values];
    for (const plan of given.plans) {
      const o = plan.outcomes[y0];
      for (const x of o.estimate) if (x !== null) lines.push(scaled(x));
      for (const x of [...o.lower, ...o.upper]) if (x !== null) values.push(scaled(x));
    }
    let [low, high] = [Math.min(...lines), Math.max(...lines)];
    const room = (high - low) || Math.abs(high) || 1;  // bands may take as much again; the lines stay readable
    [low, high] = [Math.max(Math.min(low, ...values), low - room), Math.min(Math.max(high, ...values), high + room)];
    const margin = 0.06 * (high - low || 1);
    [low, high] = [low >= 0 && low - margin < 0 ? Math.min(low, 0) : low - margin, high + margin];
    const X = (step) => left + (step - from) / (last - from) * (width - left - right);
    const Y = (value) => top + (high - Math.min(Math.max(value, low), high)) / (high - low) * (height - top - bottom);
    plot = { X, from, last, origin: given.origin, width };
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("aria-hidden", "true");
    const scale = ticks(low, high, height < 300 ? 4 : 6);
    for (const value of scale.found) {
      draw("line", { class: "grid", x1: left, x2: width - right, y1: Y(value), y2: Y(value) }, svg);
      draw("text", { x: left - 8, y: Y(value) + 4, "text-anchor": "end" }, svg, value.toFixed(scale.places).replace("-", MINUS));
    }
    const along = ticks(from, last, width < 480 ? 5 : 9).found.filter(Number.isInteger);
    for (const step of along) draw("text", { x: X(step), y: height - bottom + 18, "text-anchor": "middle" }, svg, String(step));
    draw("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, svg, about.axis);
    draw("line", { class: "origin-line", x1: X(given.origin), x2: X(given.origin), y1: top, y2: height - bottom }, svg);
    draw("line", { class: "cursor", x1: X(state.step), x2: X(state.step), y1: top, y2: height - bottom }, svg);
    const path = (points) => {
      let open = false;
      return points.map(([x, y]) => {
        if (y === null) { open = false; return ""; }
        const part = `${open ? "L" : "M"}${X(x).toFixed(1)} ${Y(y).toFixed(1)}`;
        open = true;
        return part;
      }).join("");
    };
    const groups = given.plans.map((plan, i) => draw("g", { class: `p${i}` }, svg));
    given.plans.forEach((plan, i) => {
      const o = plan.outcomes[y0], steps = o.estimate.map((_, h) => given.origin + 1 + h);
      const limited = steps.map((step, h) => [step, scaled(o.lower[h]), scaled(o.upper[h])]).filter((one) => one[1] !== null && one[2] !== null);
      if (limited.length) {
        const begin = start === null ? [] : [[given.origin, start]];
        const upper = [...begin, ...limited.map(([s, , u]) => [s, u])], lower = [...begin, ...limited.map(([s, l]) => [s, l])];
        draw("path", { class: "band", d: `${path([...upper, ...lower.reverse()])}Z` }, groups[i]);
        for (const edge of [upper, lower]) draw("path", { class: "edge", d: path(edge) }, groups[i]);
      }
    });
    draw("path", { class: "known", d: path(known.map((y, i) => [from + i, y])) }, svg);
    known.forEach((y, i) => { if (y !== null) draw("circle", { class: "known-dot", cx: X(from + i), cy: Y(y), r: 2.4 }, svg); });
    given.given.slice(from - given.first).forEach((what, i) => {  // below the curve: what was given, and when
      if (what === null) return;
      const x = X(from + i), y = height - bottom;
      draw("title", {}, draw("path", { class: "given", d: `M${x - 4} ${y + 1}h8l-4 -7z` }, svg), `${when(from + i)}: ${what}`);
    });
    const ends = [];
    given.plans.forEach((plan, i) => {
      const o = plan.outcomes[y0], group = draw("g", { class: `p${i}` }, svg);
      draw("path", { class: "curve", d: path([[given.origin, start], ...o.estimate.map((y, h) => [given.origin + 1 + h, scaled(y)])]) }, group);
      o.estimate.forEach((y, h) => {
        if (y === null) return;
        const [x, v, rating] = [X(given.origin + 1 + h), Y(scaled(y)), (o.support || "")[h]];
        if (rating === "r") draw("path", { class: "cross", d: `M${x - 4} ${v - 4}l8 8m0 -8l-8 8` }, group);
        else draw("circle", { class: rating === "a" ? "dot amber" : "dot", cx: x, cy: v, r: 3.6 }, group);
        const seen = o.observed ? scaled(o.observed[h]) : null;
        if (seen !== null) draw("circle", { class: "ring", cx: x, cy: Y(seen), r: 7 }, group);
      });
      const h = o.estimate.length - 1;
      if (o.estimate[h] !== null) ends.push({ y: Y(scaled(o.estimate[h])), x: X(given.origin + 1 + h), group, letter: LETTERS[i] });
    });
    ends.sort((a, b) => a.y - b.y);
    ends.forEach((one, i) => {  // letters at the ends of the curves, not on top of each other
      if (i && one.y < ends[i - 1].y + 13) one.y = ends[i - 1].y + 13;
      draw("text", { class: "name", x: one.x + 10, y: one.y + 4 }, one.group, one.letter);
    });
    fill(box, svg);
    box.setAttribute("aria-valuemin", given.origin + 1);
    box.setAttribute("aria-valuemax", last);
    box.setAttribute("aria-valuenow", state.step);
    box.setAttribute("aria-valuetext", when(state.step));
    $("chart-title").textContent = `${outcomeOf().label}${unit() ? ` (${unit()})` : ""} of subject ${given.subject}, by ${given.model}`;
    const ratings = new Set(given.plans.flatMap((plan) => [...(plan.outcomes[y0].support || "")]));
    const entries = [make("li", {}, "— recorded"), make("li", {}, limitsText())];
    if (given.given.slice(from - given.first).some((what) => what !== null)) entries.push(make("li", {}, "▲ treated"));
    if (ratings.has("g")) entries.push(make("li", {}, "● supported"));
    if (ratings.has("a")) entries.push(make("li", {}, "○ rare in the data"));
    if (ratings.has("r")) entries.push(make("li", {}, "✕ not supported"));
    if (given.plans.some((plan) => plan.outcomes[y0].observed)) entries.push(make("li", {}, "ring: recorded under this plan"));
    fill($("legend"), ...given.plans.map((plan, i) => make("li", { className: `p${i}` }, make("span", { className: "swatch" }), make("b", {}, LETTERS[i]), ` ${plan.name}`)), ...entries);
  }
  function limitsText() {
    const given = state.answer;
    const any = given.plans.some((plan) => plan.outcomes[state.outcome].lower.some((x) => x !== null));
    return any ? `shaded: ${percent(given.level)} band` : `no band: ${given.interval_kind}`;
  }
  function pick(step) {
    const { origin, last } = plot;
    const wanted = Math.min(Math.max(Math.round(step), origin + 1), last);
    if (wanted !== state.step) { state.step = wanted; read(); }
  }
  function stepAt(event) {
    const box = $("chart").getBoundingClientRect(), x = (event.clientX - box.left) / box.width * plot.width;
    const { X, from, last } = plot;
    return from + (x - X(from)) / (X(last) - X(from)) * (last - from);
  }

  // ---- the table ----
  function table() {
    const given = state.answer, reference = given.plans[0], y0 = state.outcome, several = given.plans.length > 1;
    $("table-title").textContent = `Compared on ${when(state.step)}`;
    const name = `${outcomeOf().label}${unit() ? ` (${unit()})` : ""}`, apart = `Difference from ${reference.name}`;
    const kind = several && isRange() ? ` (in brackets: ${given.difference_kinds[y0]}, which has no level)` : "";
    let reach = 0;
    for (const plan of given.plans) {
      const o = plan.outcomes[y0], h = at(plan, state.step);
      for (const of of ["difference", "difference_lower", "difference_upper"]) if (h !== null && o[of]) reach = Math.max(reach, Math.abs(scaled(o[of][h]) || 0));
    }
    const head = make("tr", {}, ...["Plan", name, ...(several ? [apart + kind, ""] : []), ...(given.ends ? [`No ${given.ends} so far`] : []), "Support"].map((text) => make("th", { scope: "col" }, text)));
    const body = given.plans.map((plan, i) => {
      const o = plan.outcomes[y0], h = at(plan, state.step), rating = verdict(plan);
      const cells = [make("td", {}, make("span", { className: "swatch" }), make("b", {}, LETTERS[i]), ` ${plan.name}`)];
      const value = h === null || o.estimate[h] === null ? ["no estimate"] : [make("b", {}, number(scaled(o.estimate[h]))), range(o.lower[h], o.upper[h]) ? ` (${range(o.lower[h], o.upper[h])})` : ""];
      cells.push(make("td", { className: "number", "data-label": name }, ...value));
      if (several) {
        const d = o.difference && h !== null ? o.difference[h] : null;
        const has = d !== null && d !== undefined, limits = has ? range(o.difference_lower[h], o.difference_upper[h], true) : "";
        cells.push(has ? make("td", { className: "number", "data-label": apart + kind }, make("b", {}, number(scaled(d), true)), limits ? ` (${limits})` : "") : make("td", { className: "quiet" }, i ? "" : "reference"));
        cells.push(make("td", {}, has ? forest(scaled(d), ...(isRange() ? [null, null] : [scaled(o.difference_lower[h]), scaled(o.difference_upper[h])]), reach) : null));
      }
      if (given.ends) cells.push(make("td", { "data-label": `No ${given.ends} so far` }, h === null || !plan.survival ? "" : `${(100 * plan.survival[h]).toFixed(1)}\u00a0%`));
      cells.push(make("td", { className: rating.tone, "data-label": "Support", title: rating.reason || "" }, rating.text));
      return make("tr", { className: `p${i}` }, ...cells);
    });
    fill($("table"), make("thead", {}, head), make("tbody", {}, ...body));
  }
  function forest(value, low, high, reach) {
    const svg = document.createElementNS(SVG, "svg"), X = (x) => 72 + 66 * x / (reach || 1);
    svg.setAttribute("viewBox", "0 0 144 26");
    svg.setAttribute("class", "forest");
    svg.setAttribute("aria-hidden", "true");
    draw("line", { class: "zero", x1: 72, x2: 72, y1: 1, y2: 25 }, svg);
    if (low !== null && high !== null) draw("line", { class: "bar", x1: X(low), x2: X(high), y1: 13, y2: 13 }, svg);
    draw("circle", { cx: X(value), cy: 13, r: 4 }, svg);
    return svg;
  }

  // ---- plans ----
  const fixed = (i) => frozen && i === 0;
  function change(i, values, how = {}) {
    state.plans[i].values = values;
    state.active = i;
    paint(i);
    changed(how);
  }
  const allowed = (i, values) => !frozen || (!fixed(i) && saved.has(keyOf(values)));
  function withCell(i, h, t, value) {
    const values = state.plans[i].values.map((row) => [...row]);
    values[h][t] = value;
    return values;
  }
  const following = (i, h, t) => (state.plans[i].values[h][t] + 1) % about.treatments[t].levels.length;
  function cellsOf(i) { return [...$("cards").children[i].querySelectorAll(".cell")]; }
  function paint(i) {
    for (const cell of cellsOf(i)) {
      const [h, t] = [Number(cell.dataset.h), Number(cell.dataset.t)], one = about.treatments[t], value = state.plans[i].values[h][t];
      const label = `${one.name}, ${about.step} ${(state.origin ?? 0) + h}, plan ${LETTERS[i]}`;
      if (one.levels) {
        cell.setAttribute("aria-pressed", String(value > 0));
        cell.textContent = value ? (one.on_off ? "●" : one.levels[value]) : one.on_off ? "" : "·";
        cell.setAttribute("aria-label", one.on_off ? label : `${label}: ${one.levels[value]}`);
        cell.title = one.on_off ? "" : one.levels[value];
        cell.disabled = !allowed(i, withCell(i, h, t, following(i, h, t)));
      } else {
        cell.setAttribute("aria-label", label);
        if (cell !== document.activeElement && (Number(cell.value) !== value || cell.value === "")) cell.value = value;
        cell.disabled = Boolean(frozen);
      }
    }
    const heads = $("cards").children[i].querySelectorAll("thead th");
    heads.forEach((head, h) => { if (h) head.textContent = String((state.origin ?? 0) + h - 1); });
  }
  function card(plan, i) {
    const steps = plan.values.length, body = [];
    about.treatments.forEach((one, t) => {
      const cells = plan.values.map((_, h) => {
        const data = { className: "cell", "data-h": h, "data-t": t };
        if (one.levels) return make("button", { ...data, type: "button", onclick: () => change(i, withCell(i, h, t, following(i, h, t))) });
        return make("input", { ...data, type: "number", step: "any", title: one.range, oninput: (event) => {
          const value = event.target.valueAsNumber;
          if (Number.isFinite(value)) change(i, withCell(i, h, t, value), { at: 120 });
        } });
      });
      body.push(make("tr", {}, make("th", { scope: "row" }, one.name), ...cells.map((cell) => make("td", {}, cell))));
    });
    const head = make("tr", {}, make("th", {}, about.step), ...plan.values.map(() => make("th", { scope: "col" })));
    const calendar = make("table", { className: "calendar", onkeydown: (event) => move(event, i, steps) }, make("thead", {}, head), make("tbody", {}, ...body));
    const name = make("input", { value: plan.name, maxLength: 40, "aria-label": `Name of plan ${LETTERS[i]}`, readOnly: fixed(i), onchange: () => {
      const wanted = name.value.trim() || `Plan ${LETTERS[i]}`;
      state.plans[i].name = state.plans.some((other, j) => j !== i && other.name === wanted) ? `${wanted} (${LETTERS[i]})` : wanted;
      name.value = state.plans[i].name;
      changed();
    } });
    const button = (text, label, onclick, more = {}) => make("button", { type: "button", "aria-label": `${label} plan ${LETTERS[i]}`, title: label, onclick, ...more }, text);
    const tools = [
      button("Copy", "Copy", () => { addPlan(plan.values.map((row) => [...row])); $("cards").lastChild.querySelector("input").focus(); }, { className: "copy" }),
      button("Clear", "Clear", () => change(i, none(steps)), { disabled: fixed(i) }),
      frozen ? null : button("As recorded", "Copy the recorded treatments into", () => {
        const values = none(steps);
        (state.answer.recorded || []).forEach((row, h) => { values[h] = [...row]; });
        change(i, values);
      }, { className: "recorded" }),
      state.plans.length > 1 && !fixed(i) ? button("Remove", "Remove", () => { state.plans.splice(i, 1); state.active = Math.max(0, i - 1); cards(); $("add").focus(); changed(); }) : null,
    ].filter((tool) => tool);
    return make("div", { className: `card p${i}`, role: "group", "aria-label": `Plan ${LETTERS[i]}`, onfocusin: () => { if (state.active !== i && state.answer && i < state.answer.plans.length) { state.active = i; sentence(); } } },
      make("div", { className: "row" }, make("b", {}, LETTERS[i]), name, make("span", { className: "together" }, ...tools)),
      make("div", { className: "wide" }, calendar), make("p", { className: "plan-words" }));
  }
  function move(event, i, steps) {  // arrow keys walk through the calendar
    const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], Home: [-steps, 0], End: [steps, 0] }[event.key];
    const cell = event.target;
    if (!by || !cell.classList.contains("cell") || (cell.tagName === "INPUT" && !by[0] && rows === 1)) return;
    event.preventDefault();
    let [h, t] = [Number(cell.dataset.h), Number(cell.dataset.t)];
    for (;;) {
      [h, t] = [h + by[0], t + by[1]];
      if (Math.abs(by[0]) === steps) h = by[0] < 0 ? 0 : steps - 1;
      const next = cellsOf(i).find((one) => Number(one.dataset.h) === h && Number(one.dataset.t) === t);
      if (!next) return;
      if (!next.disabled) { next.focus(); return; }
      if (Math.abs(by[0]) === steps) return;
    }
  }
  function cards() {
    fill($("cards"), ...state.plans.map(card));
    state.plans.forEach((_, i) => paint(i));
    const full = state.plans.length >= about.most_plans;
    $("add").disabled = full;
    for (const button of document.querySelectorAll(".copy")) button.disabled = full;
  }
  function addPlan(values, name) {
    const i = Math.min(state.plans.length, about.most_plans - 1);
    const free = [...LETTERS.slice(i), ...LETTERS].map((letter) => `Plan ${letter}`).find((one) => !state.plans.some((plan) => plan.name === one));
    state.plans[i] = { name: name && !state.plans.some((plan) => plan.name === name) ? name : free, values };
    state.active = i;
    cards();
    changed();
  }

  // ---- subject and origin ----
  function choose(subject) {
    if (subject === state.subject || !subject) return;
    Object.assign(state, { subject, origin: null, step: null });
    $("subject").value = subject;
    if (frozen) open();
    changed();
  }
  async function list() {
    if (frozen) return;
    try {
      const found = await ask("subjects", { text: $("subject").value });
      fill($("subjects"), ...found.subjects.map((one) => make("option", { value: one.name }, one.part)));
    } catch { /* the list is a help: the answer says what is wrong */ }
  }
  async function neighbour(by) {
    const names = frozen ? Object.keys(frozen) : (await ask("near", { subject: state.subject }).catch(() => ({ subjects: [] }))).subjects;
    const place = names.indexOf(state.subject);
    if (place >= 0 && names[place + by] !== undefined) choose(names[place + by]);
  }
  function open() {  // of a page by itself: the plans that are saved
    saved.clear();
    for (const plan of frozen[state.subject].plans) saved.set(keyOf(plan.values), plan);
    state.origin = frozen[state.subject].origin;
    state.plans.forEach((_, i) => { if ($("cards").children[i]) paint(i); });
  }

  // ---- search ----
  async function search(event) {
    event.preventDefault();
    const limits = {};
    for (const input of $("limits").querySelectorAll("input")) if (input.value !== "") limits[input.dataset.name] = input.valueAsNumber;
    $("search-go").disabled = true;
    fill($("found"), make("p", { className: "quiet" }, "Searching …"));
    try {
      const found = await ask("search", { model: $("model").value, subject: state.subject, origin: state.origin, unsupported: $("unsupported").checked,
        goal: $("goal").value, outcome: $("goal-outcome").value, when: $("goal-when").value, at_most: limits });
      const end = found.unit ? ` ${found.unit}` : "", most = Math.max(...[...found.plans, found.reference].map((plan) => Math.abs(plan.objective || 0)));
      const places = most > 0 ? Math.min(9, Math.max(0, 3 - Math.floor(Math.log10(most)))) : 3, text = (x) => x.toFixed(places).replace("-", MINUS);
      const items = found.plans.map((plan) => make("li", {}, make("b", {}, `${text(plan.objective)}${end}`),
        plan.lower === null ? "" : ` (${text(plan.lower)} to ${text(plan.upper)})`, ` ${plan.plan}. `,
        make("span", { className: plan.support ? `${plan.support}-text` : "quiet" }, plan.support ? `${SIGNS[plan.support]} ${RATINGS[plan.support].toLowerCase()}` : ""),
        make("button", { type: "button", onclick: () => addPlan(plan.given.map(valuesOf), `Best ${plan.rank}`) }, "Compare this plan")));
      fill($("found"), make("ol", {}, ...items), make("p", { className: "quiet" }, `Compared with ${text(found.reference.objective)}${end}: ${found.reference.plan}.`), ...found.sure.map((line) => make("p", { className: "quiet" }, `${line[0].toUpperCase()}${line.slice(1)}.`)),
        make("pre", { tabIndex: 0, "aria-label": "Command of this search" }, found.command));
    } catch (error) {
      const shown = error.report || { problem: String(error) };
      fill($("found"), make("p", { className: "problem" }, shown.problem, shown.fix ? make("small", {}, shown.fix) : null));
    }
    $("search-go").disabled = false;
    document.body.dataset.searches = Number(document.body.dataset.searches || 0) + 1;
  }
  const valuesOf = (given) => about.treatments.map((one) => one.levels ? one.levels.indexOf(given[one.name]) : Number(given[one.key]));

  // ---- command and report ----
  async function copy() {
    try {
      await navigator.clipboard.writeText(state.command);
      $("message").textContent = "Copied: paste it into a shell.";
    } catch {
      getSelection().selectAllChildren($("command"));
      $("message").textContent = "Selected: copy it with Ctrl-C.";
    }
  }
  async function save() {
    $("message").textContent = "Writing the report …";
    try {
      const page = await ask("report", question(), "blob"), link = make("a", { href: URL.createObjectURL(page), download: "whatif.html" });
      link.click();
      URL.revokeObjectURL(link.href);
      $("message").textContent = "Saved as whatif.html, a self-contained page.";
    } catch (error) {
      $("message").textContent = error.message;
    }
  }

  // ---- begin ----
  function begin() {
    const counts = Object.values(about.subjects).reduce((sum, n) => sum + n, 0);
    $("about").textContent = frozen ? `${about.dataset}: ${Object.keys(frozen).length} of ${counts.toLocaleString("en")} subjects, saved answers`
      : `${about.dataset}: ${counts.toLocaleString("en")} subjects, ${about.models.length} model${about.models.length > 1 ? "s" : ""}`;
    $("version").textContent = `costar ${about.version}`;
    $("plans-help").textContent = frozen ? "Click a cell to give a treatment. Only saved plans can be chosen."
      : "Click a cell to give a treatment, or type a dose. Plans are compared with the first one.";
    $("origin-label").textContent = `Forecast from ${about.step}`;
    document.title = `costar explore: ${about.dataset}`;
    fill($("model"), ...about.models.map((one) => make("option", { value: one.label }, one.label)));
    fill($("outcome"), ...about.outcomes.map((one, i) => make("option", { value: String(i) }, one.label)));
    $("outcome-field").hidden = about.outcomes.length < 2;
    fill($("goal-outcome"), ...about.outcomes.map((one) => make("option", { value: one.name }, one.label)));
    $("goal-outcome").hidden = about.outcomes.length < 2;  // the goal names the only one
    if (about.outcomes.length < 2) for (const option of $("goal").options) option.textContent += ` ${about.outcomes[0].label}`;
    fill($("goal-when"), ...about.when.map((one) => make("option", { value: one }, one)));
    $("subject").value = state.subject;
    const steps = frozen ? frozen[state.subject].plans[0].values.length : about.models[0].horizon;
    fill($("limits"), ...about.treatments.filter((one) => !(one.idle > 0)).map((one) => make("label", {}, `${one.name}: most steps`,
      make("input", { type: "number", min: 0, max: steps, step: 1, placeholder: "any", "data-name": one.key || one.name }))));
    state.plans = [{ name: "No treatment", values: none(steps) }, { name: "Plan B", values: none(steps) }];
    if (frozen) {
      document.body.classList.add("frozen");
      fill($("subjects"), ...Object.keys(frozen).map((name) => make("option", { value: name })));
      open();
      state.plans[0].values = frozen[state.subject].plans[0].values;
    }
    cards();
    $("add").addEventListener("click", () => addPlan(none(horizon())));
    $("model").addEventListener("change", () => {
      const steps = horizon();
      for (const plan of state.plans) plan.values = [...plan.values.slice(0, steps), ...none(Math.max(0, steps - plan.values.length))];
      state.step = null;
      cards();
      changed();
    });
    $("outcome").addEventListener("change", () => { state.outcome = Number($("outcome").value); if (state.answer) read(); });
    $("subject").addEventListener("input", list);
    $("subject").addEventListener("change", () => choose($("subject").value.trim()));
    $("previous").addEventListener("click", () => neighbour(-1));
    $("next").addEventListener("click", () => neighbour(1));
    for (const id of ["origin", "origin-slide"]) {
      $(id).addEventListener("input", () => {
        if (!Number.isInteger($(id).valueAsNumber)) return;
        Object.assign(state, { origin: $(id).valueAsNumber, step: null });
        state.plans.forEach((_, i) => paint(i));
        changed({ at: 60 });
      });
    }
    $("unsupported").addEventListener("change", () => changed());
    $("search-form").addEventListener("submit", search);
    $("copy").addEventListener("click", copy);
    $("save").addEventListener("click", save);
    const box = $("chart");
    box.addEventListener("click", (event) => plot && pick(stepAt(event)));
    box.addEventListener("pointermove", (event) => { if (plot && event.buttons) pick(stepAt(event)); });
    box.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
      if (!plot || !by) return;
      event.preventDefault();
      pick(state.step + by);
    });
    let width = 0;
    new ResizeObserver(() => { if (state.answer && box.clientWidth !== width) { width = box.clientWidth; chart(); } }).observe(box);
    list();
    answer();
  }
  begin();
})();
