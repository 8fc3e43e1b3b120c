// All metrics behind a search: one is drawn, smoothed and on a log scale if that is wanted.
import { useMemo, useState } from "preact/hooks";
import { useAnswer } from "../ask.js";
import { Card, Waiting } from "../card.js";
import { Chart } from "../chart.js";
import { SERIES } from "../colours.js";
import { html } from "../html.js";
import { many } from "../words.js";

const SHOWN = 50;

// An exponential mean that does not lean towards 0 at the start; what is no number is left out.
export function smoothed(values, weight) {
  if (!weight) return values;
  let [sum, mass] = [0, 0];
  return values.map((value) => {
    if (value === null || value === undefined) return value;
    sum = weight * sum + (1 - weight) * value;
    mass = weight * mass + (1 - weight);
    return sum / mass;
  });
}

export function Metrics({ id, tick, facts, range, onRange, first, last }) {
  const names = facts.metric_names;
  const [wanted, want] = useState("");
  const [words, search] = useState("");
  const [weight, weigh] = useState(0);
  const [log, setLog] = useState(false);
  const name = names.includes(wanted) ? wanted : names.includes(facts.metric) ? facts.metric : names[0];
  const found = names.filter((one) => one.toLowerCase().includes(words.toLowerCase()));
  return html`<${Card} name="metrics" title="Metrics">${(seen) => {
    const answer = useAnswer("metric", { run: id, name, first, last, columns: 600 }, tick, seen && name !== undefined);
    const series = useMemo(() => answer.data && drawn(answer.data, weight), [answer.data, weight]);
    if (name === undefined) return html`<p class="quiet">No metric was recorded yet.</p>`;
    return html`<div class="tools">
        <label>Search <input type="search" size="12" value=${words} onInput=${(event) => search(event.target.value)} /></label>
        <label>Metric <select value=${name} onChange=${(event) => want(event.target.value)}>
          ${(found.slice(0, SHOWN).includes(name) ? [] : [name]).concat(found.slice(0, SHOWN)).map((one) => html`<option value=${one} selected=${one === name}>${one}</option>`)}</select></label>
        <span role="status" class="quiet">${many(found.length)} of ${many(names.length)}</span>
        <label>Smooth <input type="range" min="0" max="0.99" step="0.01" value=${weight} onInput=${(event) => weigh(Number(event.target.value))} /></label>
        <label><input type="checkbox" checked=${log} onChange=${(event) => setLog(event.target.checked)} /> log</label>
      </div>
      ${answer.data?.points && answer.data.name === name ? html`<${Chart} label=${name} x=${answer.data.x} series=${series} range=${range} onRange=${onRange} log=${log} />` : html`<${Waiting} answer=${answer} empty="No value in these steps." chart />`}`;
  }}<//>`;
}

function drawn(data, weight) {
  const band = data.points > data.x.length ? { low: data.least, high: data.greatest } : {};
  const raw = { label: data.name, colour: SERIES[0], values: data.mean, dots: data.x.length < 100 && !weight, ...band };
  return weight ? [{ ...raw, colour: "#8a8f98", aside: true }, { label: `${data.name}, smoothed`, colour: SERIES[0], values: smoothed(data.mean, weight) }] : [raw];
}
