// Several runs in every chart, over steps, samples, time or bytes, and beside them the settings that differ.
import { useMemo, useState } from "preact/hooks";
import { useAnswer, useLive } from "./ask.js";
import { Card, Waiting } from "./card.js";
import { Chart } from "./chart.js";
import { line, SERIES, useTheme } from "./colours.js";
import { html } from "./html.js";
import { Parallel } from "./parallel.js";
import { brief, duration, folderOf, number, size } from "./words.js";

const OVER = {
  steps: ["step", (data) => data.x, number],
  samples: ["samples", (data) => data.samples, number],
  time: ["seconds", (data) => { const start = data.ended_at.find((at) => at !== null); return data.ended_at.map((at) => (at === null ? null : at - start)); }, duration],
  bytes: ["bytes sent", (data) => data.sent_bytes, size],
};
const OF_STEPS = [["loss", "Training loss", (data) => data.loss.mean, number], ["throughput", "Throughput, samples per second", (data) => data.samples_per_s, number], ["step", "Time of a step", (data) => data.step_s, brief]];

export function Compare({ ids }) {
  const [tick] = useLive(null);
  const [over, set] = useState("steps");
  const [log, setLog] = useState(false);
  const table = useAnswer("compare", { run: ids }, tick);
  const steps = ids.map((run) => useAnswer("steps", { run, columns: 500 }, tick)); // as many as the address has, always
  const ready = steps.every((one) => one.data);
  const [word, along] = OVER[over];
  const error = [table, ...steps].find((one) => one.error);
  if (error && !(ready && table.data)) return html`<main><h1>${ids.length} runs</h1><p class="error" role="alert">${error.error}</p></main>`;
  return html`<main>
    <h1>${ids.length} runs${folderOf(ids) && ` of ${folderOf(ids).slice(0, -1)}`}</h1>
    ${error && html`<p class="error" role="alert">${error.error}</p>`}
    <div class="tools" role="toolbar" aria-label="what charts are drawn over">
      ${Object.keys(OVER).map((name) => html`<label><input type="radio" name="over" checked=${over === name} onChange=${() => set(name)} /> ${name}</label>`)}
      <label><input type="checkbox" checked=${log} onChange=${(event) => setLog(event.target.checked)} /> log</label>
    </div>
    <div class="cards">
      ${OF_STEPS.map(([name, title, pick, format]) => html`<${Card} name=${name} title=${title}>${() => html`
        <${Joined} label=${title} ids=${ids} ready=${ready} parts=${() => steps.map(({ data }) => [along(data), pick(data)])} word=${word} log=${log} format=${format} of=${[over, ...steps.map((one) => one.data)]} />`}<//>`)}
      ${(table.data?.metrics ?? []).map((name) => html`<${Card} key=${name} name=${`metric-${name}`} title=${table.data.own_loop ? name : `Validation ${name}`}>${(seen) => html`<${Metric} ids=${ids} name=${name} tick=${tick} seen=${seen} steps=${steps} ready=${ready} over=${over} log=${log} />`}<//>`)}
      ${table.data?.differing > 0 && html`<${Card} name="parallel" title="Settings and what came of them" wide>${() => html`<${Parallel} data=${table.data} />`}<//>`}
      <${Card} name="compared" title="Side by side" wide>${() => (table.data ? html`<${Rows} data=${table.data} />` : html`<${Waiting} answer=${table} />`)}<//>
    </div>
  </main>`;
}

function Metric({ ids, name, tick, seen, steps, ready, over, log }) {
  const found = ids.map((run) => useAnswer("metric", { run, name, columns: 500 }, tick, seen));
  const [word, along] = OVER[over];
  const parts = () => found.map(({ data }, at) => [data.x.map((step) => placed(step, steps[at].data, along)), data.mean]);
  return html`<${Joined} label=${name} ids=${ids} ready=${ready && found.every((one) => one.data)} parts=${parts} word=${word} log=${log} format=${number} dots of=${[over, ...steps, ...found].map((one) => one.data ?? one)} />`;
}

// Where a step lies on another axis: that of the column that it is in.
function placed(step, data, along) {
  if (along === OVER.steps[1]) return step;
  const at = Math.min(data.x.length - 1, Math.max(0, Math.floor((step - data.first) / data.width)));
  return along(data)[at];
}

function Joined({ label, ids, ready, parts, word, log, format, dots, of }) {
  const [x, series] = useMemo(() => (ready ? joined(ids, parts(), dots) : [[], []]), [ready, ...of]);
  if (!ready) return html`<p class="quiet">reading …</p>`;
  if (!x.length) return html`<p class="quiet">Nothing yet.</p>`;
  return html`<${Chart} label=${label} x=${x} series=${series} xLabel=${word} log=${log} format=${format} sync="compare" />`;
}

// undefined: another run has a point there; null: a gap
export function joined(ids, parts, dots) {
  const x = [...new Set(parts.flatMap(([places]) => places.filter((place) => place !== null)))].sort((a, b) => a - b);
  const at = new Map(x.map((place, index) => [place, index]));
  const folder = folderOf(ids);
  const series = parts.map(([places, values], which) => {
    const made = new Array(x.length);
    for (const [index, place] of places.entries()) if (place !== null) made[at.get(place)] = values[index];
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
    <tbody class="differing"><tr><th scope="rowgroup" colspan=${data.runs.length + 1}>${data.differing ? "Settings that differ" : "No setting differs"}</th></tr>${data.rows.slice(0, data.differing).map(row)}</tbody>
    <tbody><tr><th scope="rowgroup" colspan=${data.runs.length + 1}>Results</th></tr>${data.rows.slice(data.differing).map(row)}</tbody>
  </table></div>`;
}
