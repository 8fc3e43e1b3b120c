// Several runs: what they came to and the settings that differ, then all of them in every chart, over steps, samples, time or bytes.
import { useMemo, useState } from "preact/hooks";
import { useAnswer, useLive } from "./ask.js";
import { Card, Waiting } from "./card.js";
import { Chart } from "./chart.js";
import { line, SERIES, useTheme } from "./colours.js";
import { html } from "./html.js";
import { smoothed } from "./panels/metrics.js";
import { Parallel } from "./parallel.js";
import { brief, duration, folderOf, number, size } from "./words.js";

const OVER = {
  steps: ["step", (data) => data.x, number],
  samples: ["samples", (data) => data.samples, number],
  time: ["seconds", (data) => { const start = data.ended_at.find((at) => at !== null); return data.ended_at.map((at) => (at === null ? null : at - start)); }, duration],
  bytes: ["bytes sent", (data) => data.sent_bytes, size],
};
const OF_STEPS = [["loss", "Training loss", (data) => data.loss.mean, number], ["throughput", "Throughput, samples per second", (data) => data.samples_per_s, number, true], ["step", "Time of a step", (data) => data.step_s, brief, true]];

export function Compare({ ids }) {
  const [tick] = useLive();
  const [over, set] = useState("steps");
  const [log, setLog] = useState(false);
  const [weight, weigh] = useState(0);
  const [hidden, hide] = useState(() => new Set());
  const table = useAnswer("compare", { run: ids }, tick);
  const steps = ids.map((run) => useAnswer("steps", { run, columns: 500 }, tick)); // as many as the address has, always
  const ready = steps.every((one) => one.data);
  const [word, along] = OVER[over];
  const error = [table, ...steps].find((one) => one.error);
  if (error && !(ready && table.data)) return html`<main><h1>${ids.length} runs</h1><p class="error" role="alert">${error.error}</p></main>`;
  const look = { ids, hidden, weight, word, log, ready };
  return html`<main>
    <h1>${ids.length} runs${folderOf(ids) && ` of ${folderOf(ids).slice(0, -1)}`}</h1>
    ${error && html`<p class="error" role="alert">${error.error}</p>`}
    <div class="cards"><${Card} name="compared" title="Side by side" wide>${() => (table.data ? html`<${Rows} data=${table.data} />` : html`<${Waiting} answer=${table} />`)}<//></div>
    <${Chosen} ids=${ids} hidden=${hidden} hide=${hide} />
    <div class="tools" role="toolbar" aria-label="what charts are drawn over, and how">
      ${Object.keys(OVER).map((name) => html`<label><input type="radio" name="over" checked=${over === name} onChange=${() => set(name)} /> ${name}</label>`)}
      <label>Smooth <input type="range" min="0" max="0.99" step="0.01" value=${weight} onInput=${(event) => weigh(Number(event.target.value))} /></label>
      <label><input type="checkbox" checked=${log} onChange=${(event) => setLog(event.target.checked)} /> log</label>
    </div>
    <div class="cards">
      ${OF_STEPS.map(([name, title, pick, format, from0]) => html`<${Card} name=${name} title=${title}>${() => html`
        <${Joined} ...${look} label=${title} parts=${() => steps.map(({ data }) => [along(data), pick(data)])} format=${format} from0=${from0} of=${[over, ...steps.map((one) => one.data)]} />`}<//>`)}
      ${(table.data?.metrics ?? []).map((name) => html`<${Card} key=${name} name=${`metric-${name}`} title=${table.data.own_loop ? name : `Validation ${name}`}>${(seen) => html`<${Metric} ...${look} name=${name} tick=${tick} seen=${seen} steps=${steps} over=${over} />`}<//>`)}
      ${table.data?.differing > 0 && html`<${Card} name="parallel" title="Settings and what came of them" wide>${() => html`<${Parallel} data=${table.data} hidden=${hidden} />`}<//>`}
    </div>
  </main>`;
}

// The legend of all charts: each run with its colour, shown or not.
function Chosen({ ids, hidden, hide }) {
  useTheme();
  const folder = folderOf(ids);
  const turn = (id) => hide((old) => { const next = new Set(old); if (!next.delete(id)) next.add(id); return next; });
  return html`<fieldset class="tools chosen"><legend>Runs in the charts</legend>${ids.map((id, at) => html`<label>
    <input type="checkbox" checked=${!hidden.has(id)} onChange=${() => turn(id)} /> <i class="dot" style=${{ background: line(SERIES[at % SERIES.length]) }}></i>${id.slice(folder.length)}</label>`)}</fieldset>`;
}

function Metric({ name, tick, seen, steps, over, ...look }) {
  const found = look.ids.map((run) => useAnswer("metric", { run, name, columns: 500 }, tick, seen));
  const [, along] = OVER[over];
  const parts = () => found.map(({ data }, at) => [data.x.map((step) => placed(step, steps[at].data, along)), data.mean]);
  return html`<${Joined} ...${look} label=${name} ready=${look.ready && found.every((one) => one.data)} parts=${parts} format=${number} dots of=${[over, ...steps, ...found].map((one) => one.data ?? one)} />`;
}

// Where a step lies on another axis: that of the column that it is in.
function placed(step, data, along) {
  if (along === OVER.steps[1]) return step;
  const at = Math.min(data.x.length - 1, Math.max(0, Math.floor((step - data.first) / data.width)));
  return along(data)[at];
}

function Joined({ label, ids, hidden, weight, ready, parts, word, log, format, from0, dots, of }) {
  const [x, all] = useMemo(() => (ready ? joined(ids, parts(), weight, dots) : [[], []]), [ready, weight, ...of]);
  const series = useMemo(() => all.filter((_, which) => !hidden.has(ids[which])), [all, hidden]);
  if (!ready) return html`<p class="quiet">reading …</p>`;
  if (!x.length) return html`<p class="quiet">Nothing yet.</p>`;
  return html`<${Chart} label=${label} x=${x} series=${series} xLabel=${word} log=${log} format=${format} sync="compare" from0=${from0} even />`;
}

// undefined: another run has a point there; null: a gap
export function joined(ids, parts, weight, dots) {
  const x = [...new Set(parts.flatMap(([places]) => places.filter((place) => place !== null)))].sort((a, b) => a - b);
  const at = new Map(x.map((place, index) => [place, index]));
  const folder = folderOf(ids);
  const series = parts.map(([places, values], which) => {
    const made = new Array(x.length);
    const drawn = smoothed(values, weight);
    for (const [index, place] of places.entries()) if (place !== null) made[at.get(place)] = drawn[index];
    return { label: ids[which].slice(folder.length), colour: SERIES[which % SERIES.length], values: made, dots: !!dots && places.length < 100 };
  });
  return [x, series];
}

function Rows({ data }) {
  useTheme();
  const head = data.runs.map((id, at) => html`<th scope="col"><i class="dot" style=${{ background: line(SERIES[at % SERIES.length]) }}></i><a href=${`#/run/${id}`}>${id.slice(folderOf(data.runs).length)}</a></th>`);
  const row = ([label, ...cells]) => html`<tr><th scope="row">${label}</th>${cells.map((cell) => html`<td>${cell}</td>`)}</tr>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="the runs side by side"><table>
    <thead><tr><td></td>${head}</tr></thead>
    <tbody>${data.rows.slice(data.differing).map(row)}</tbody>
    <tbody class="differing"><tr><th scope="rowgroup" colspan=${data.runs.length + 1}>${data.differing ? "Settings that differ" : "No setting differs"}</th></tr>${data.rows.slice(0, data.differing).map(row)}</tbody>
  </table></div>`;
}
