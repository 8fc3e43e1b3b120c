// All runs of the folder: a table that is sorted by its heads and filtered by words.
import { useMemo, useState } from "preact/hooks";
import { Tags } from "./actions.js";
import { report } from "./ask.js";
import { html } from "./html.js";
import { duration, many, moment, number, plural, size } from "./words.js";

const COLUMNS = [
  ["id", "run", (run) => html`<a href=${`#/run/${run.id}`}>${run.id}</a>`],
  ["state", "state", (run) => html`<${State} state=${run.state} />`],
  ["strategy", "strategy", (run) => run.strategy],
  ["network", "network", (run) => [run.network, run.source].filter(Boolean).join(" on ")],
  ["workers", "workers", (run) => run.workers || "–", true],
  ["step", "steps", (run) => (run.steps_planned ? `${many(run.step)} / ${many(run.steps_planned)}` : many(run.step)), true],
  ["best", "best", (run) => (run.best === null ? "–" : `${run.metric} ${number(run.best)}`), true],
  ["samples_per_s", "samples/s", (run) => number(run.samples_per_s), true],
  ["elapsed_s", "time", (run) => duration(run.elapsed_s), true],
  ["size_bytes", "size", (run) => size(run.size_bytes), true],
  ["tags", "tags", (run) => html`<${Tags} facts=${run} />`],
  ["started_at", "when", (run) => moment(run.started_at), true],
];
const MOST = 12; // runs in one chart, as the server has it
const FIRST = 200; // rows: of more, the others come when they are asked for

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
  if (answer.error) return html`<p class="error" role="alert">${answer.error}</p>`;
  if (!answer.data) return html`<p class="quiet">reading …</p>`;
  // those that are chosen; or, such as a sweep's, those that the words find
  const compared = chosen.size ? [...chosen] : words ? rows.map((run) => run.id) : [];
  const turn = (column) => sort(([before, way]) => [column, before === column ? -way : column === "id" ? 1 : -1]);
  const toggle = (id) => choose((old) => { const next = new Set(old); if (!next.delete(id)) next.add(id); return next; });
  return html`<main>
    <h1>Runs ${!report && html`<a class="button" href="#/new">New run</a>`}</h1>
    <p class="quiet">${answer.data.folder}</p>
    <form class="tools" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label>Filter <input type="search" size="36" value=${words} placeholder="name, state, network, strategy, tag" onInput=${(event) => filter(event.target.value)} /></label>
      <span role="status">${rows.length === runs.length ? "" : `${many(rows.length)} of `}${plural(runs.length, "run")}${answer.data.unread ? `; reading ${many(answer.data.unread)} more` : ""}</span>
      ${compared.length > 1 && compared.length <= MOST && html`<a class="button" href=${`#/compare/${compared.map(encodeURIComponent).join(",")}`}>Compare ${compared.length} runs</a>`}
      ${compared.length > MOST && html`<span class="quiet">up to ${MOST} can be compared</span>`}
    </form>
    ${runs.length === 0 ? html`<p>No runs here yet. <code>volary init</code> and <code>volary train session.yaml</code> make the first.</p>` : html`
    <div class="scroll" tabindex="0" role="region" aria-label="runs"><table class="runs">
      <thead><tr><th scope="col"><span class="unseen">compare</span></th>${COLUMNS.map(([name, title, , right]) => html`<th scope="col" class=${right ? "number" : ""}
        aria-sort=${sorted[0] === name ? (sorted[1] > 0 ? "ascending" : "descending") : "none"}>
        <button type="button" onClick=${() => turn(name)}>${title}<span aria-hidden="true">${sorted[0] === name ? (sorted[1] > 0 ? " ↑" : " ↓") : ""}</span></button></th>`)}</tr></thead>
      <tbody>${rows.slice(0, shown).map((run) => html`<tr key=${run.id}>
        <td><input type="checkbox" aria-label=${`compare ${run.id}`} checked=${chosen.has(run.id)} onChange=${() => toggle(run.id)} /></td>
        ${COLUMNS.map(([name, , cell, right]) => html`<td class=${right ? "number" : ""} data-column=${name}>${cell(run)}</td>`)}</tr>`)}</tbody>
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
