// All runs of the folder: a table that is sorted by its heads and filtered by words.
import { useMemo, useState } from "preact/hooks";
import { Tags } from "./actions.js";
import { report } from "./ask.js";
import { html } from "./html.js";
import { duration, many, moment, number, plural, size } from "./words.js";

// first what is looked for: how far it is and what came of it
const COLUMNS = [
  ["id", "run", (run) => html`<a href=${`#/run/${run.id}`}>${run.id}</a>`],
  ["state", "state", (run) => html`<${State} state=${run.state} />`],
  ["best", "best", (run) => (run.best === null ? "–" : html`<span class="word">${run.metric} </span>${number(run.best)}`), true],
  ["elapsed_s", "time", (run) => duration(run.elapsed_s), true],
  ["step", "steps", (run) => (run.steps_planned && run.step !== run.steps_planned ? `${many(run.step)} / ${many(run.steps_planned)}` : many(run.step)), true],
  ["strategy", "strategy", (run) => run.strategy],
  ["network", "network", on],
  ["workers", "workers", (run) => run.workers || "–", true],
  ["samples_per_s", "samples/s", (run) => number(run.samples_per_s), true],
  ["size_bytes", "size", (run) => size(run.size_bytes), true],
  ["tags", "tags", (run) => html`<${Tags} facts=${run} />`],
  ["started_at", "when", (run) => moment(run.started_at), true],
];
const ALIKE = { strategy: (run) => run.strategy, network: on, workers: (run) => (run.workers ? plural(run.workers, "worker") : "") }; // said once if all runs have the same
const AXES = ["consistency", "exchange", "codec", "partition"]; // of a strategy, in its order
const MOST = 12; // runs in one chart, as the server has it
const FIRST = 200; // rows: of more, the others come when they are asked for

function on(run) {
  return [run.network, run.source].filter(Boolean).join(" on ");
}

// Which columns differ, what all runs have alike, and of the strategy's axes those that differ.
function shape(runs) {
  if (runs.length < 2) return { columns: COLUMNS, alike: [], strategy: (run) => run.strategy };
  const alike = Object.keys(ALIKE).filter((name) => new Set(runs.map(ALIKE[name])).size === 1);
  const untagged = runs.every((run) => !run.tags.length && !run.note);
  const axes = runs.filter((run) => run.strategy).map((run) => run.strategy.split(" x "));
  const differs = axes[0]?.map((_, axis) => new Set(axes.map((one) => one[axis])).size > 1);
  const same = differs && !alike.includes("strategy") ? axes[0].map((one, axis) => `${AXES[axis] ?? ""} ${one}`).filter((_, axis) => !differs[axis]) : [];
  return {
    columns: COLUMNS.filter(([name]) => !alike.includes(name) && !(name === "tags" && untagged)),
    alike: [...alike.map((name) => ALIKE[name](runs[0])), ...same].filter(Boolean),
    strategy: (run) => run.strategy.split(" x ").filter((_, axis) => !differs || differs[axis]).join(" x "),
  };
}

export function State({ state }) {
  return html`<span class=${`state ${state}`}>${state}</span>`;
}

export function Runs({ answer }) {
  const [sorted, sort] = useState(["started_at", -1]);
  const [words, filter] = useState("");
  const [chosen, choose] = useState(() => new Set());
  const [shown, show] = useState(FIRST);
  const runs = answer.data?.runs ?? [];
  const rows = useMemo(() => order(runs.filter((run) => matches(run, words)), sorted), [runs, sorted, words]);
  const { columns, alike, strategy } = useMemo(() => shape(runs), [runs]);
  if (answer.error) return html`<p class="error" role="alert">${answer.error}</p>`;
  if (!answer.data) return html`<p class="quiet">reading …</p>`;
  // those that are chosen; or, such as a sweep's, those that the words find
  const compared = chosen.size ? [...chosen] : words ? rows.map((run) => run.id) : [];
  const turn = (column) => sort(([before, way]) => [column, before === column ? -way : column === "id" ? 1 : -1]);
  const toggle = (id) => choose((old) => { const next = new Set(old); if (!next.delete(id)) next.add(id); return next; });
  return html`<main>
    <h1>Runs ${!report && html`<a class="button" href="#/new">New run</a><a class="button plain" href="#/queue">Queue</a>`}</h1>
    <p class="quiet">${answer.data.folder}${alike.length > 0 && html`<span class="alike">; all: ${alike.join(", ")}</span>`}</p>
    <form class="tools" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label>Filter <input type="search" size="36" value=${words} placeholder="name, state, network, strategy, tag" onInput=${(event) => filter(event.target.value)} /></label>
      <span role="status">${rows.length === runs.length ? "" : `${many(rows.length)} of `}${plural(runs.length, "run")}${answer.data.unread ? `; reading ${many(answer.data.unread)} more` : ""}</span>
      ${compared.length > 1 && compared.length <= MOST && html`<a class="button" href=${`#/compare/${compared.map(encodeURIComponent).join(",")}`}>Compare ${compared.length} runs</a>`}
      ${compared.length > MOST && html`<span class="quiet">up to ${MOST} can be compared</span>`}
    </form>
    ${runs.length === 0 ? html`<p>No runs here yet. ${!report && html`<a href="#/new">New run</a> makes the first, and so do `}<code>volary init</code> and <code>volary train session.yaml</code>${report && " make the first"}.</p>` : html`
    <div class="scroll" tabindex="0" role="region" aria-label="runs"><table class="runs">
      <thead><tr><th scope="col"><span class="unseen">compare</span></th>${columns.map(([name, title, , right]) => html`<th scope="col" class=${right ? "number" : ""} data-column=${name}
        aria-sort=${sorted[0] === name ? (sorted[1] > 0 ? "ascending" : "descending") : "none"}>
        <button type="button" onClick=${() => turn(name)}>${title}<span aria-hidden="true">${sorted[0] === name ? (sorted[1] > 0 ? " ↑" : " ↓") : ""}</span></button></th>`)}</tr></thead>
      <tbody>${rows.slice(0, shown).map((run) => html`<tr key=${run.id}>
        <td><input type="checkbox" aria-label=${`compare ${run.id}`} checked=${chosen.has(run.id)} onChange=${() => toggle(run.id)} /></td>
        ${columns.map(([name, , cell, right]) => html`<td class=${right ? "number" : ""} data-column=${name}>${name === "strategy" ? strategy(run) : cell(run)}</td>`)}</tr>`)}</tbody>
    </table></div>
    ${rows.length > shown && html`<button type="button" onClick=${() => show((count) => count + 1000)}>Show ${Math.min(1000, rows.length - shown)} more</button>`}`}
  </main>`;
}

function matches(run, words) {
  const text = [run.id, run.state, run.strategy, run.network, run.source, ...run.tags, run.note].join(" ").toLowerCase();
  return words.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

function order(runs, [column, way]) {
  const missing = (value) => value === null || value === undefined || value === "";
  return [...runs].sort((one, other) => {
    const [a, b] = [one[column], other[column]].map((value) => (Array.isArray(value) ? value.join(" ") : value));
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    return way * (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
  });
}
