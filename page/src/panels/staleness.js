// Of a run with parameter servers: how old parameters were when they were used, and who waited how long.
import { useMemo } from "preact/hooks";
import { useAnswer } from "../ask.js";
import { Card } from "../card.js";
import { Chart } from "../chart.js";
import { SERIES } from "../colours.js";
import { html } from "../html.js";
import { many, percent } from "../words.js";

const TITLES = { staleness: "updates between the parameters a contribution was computed with and its own", wait: "milliseconds that workers waited for parameters, up to" };
const COUNTS = ["late", "dropped", "stolen", "refused"];

export function Staleness({ id, tick, facts }) {
  if (!facts.counts.length) return null;
  const totals = COUNTS.map((kind) => [kind, sum(facts.counts.filter((one) => one.kind === kind))]).filter(([, count]) => count);
  return html`<${Card} name="staleness" title="Staleness">${(seen) => html`
    <${Course} id=${id} tick=${tick} seen=${seen} />
    ${Object.keys(TITLES).map((kind) => html`<${Histogram} title=${TITLES[kind]} found=${facts.counts.filter((one) => one.kind === kind)} />`)}
    ${totals.length > 0 && html`<p>${totals.map(([kind, count]) => html`<span>${kind}: <b>${many(count)}</b> </span>`)}</p>`}`}<//>`;
}

function Course({ id, tick, seen }) {
  const { data } = useAnswer("staleness", { run: id }, tick, seen);
  const series = useMemo(() => (data?.means.staleness ? [{ label: "mean staleness", colour: SERIES[0], values: data.means.staleness }] : []), [data]);
  if (!series.length || data.x.length < 2) return null;
  return html`<${Chart} label="Staleness over time" x=${data.x} series=${series} xLabel="seconds" sync="staleness" height=${130} from0 />`;
}

const sum = (found) => found.reduce((total, one) => total + one.count, 0);

function Histogram({ title, found }) {
  if (!found.length) return null;
  const all = sum(found);
  const values = [...new Set(found.map((one) => one.value))].sort((a, b) => a - b);
  const counts = values.map((value) => sum(found.filter((one) => one.value === value)));
  const most = Math.max(...counts);
  const mean = found.reduce((total, one) => total + one.value * one.count, 0) / all;
  return html`<h3>${title}</h3><p class="quiet">${many(all)} counted, mean ${mean.toFixed(2)}, most ${values.at(-1)}</p>
    <ul class="histogram">${values.map((value, at) => html`<li><span>${value}</span><i style=${{ width: `${(100 * counts[at]) / most}%`, background: SERIES[0] }}></i><span>${percent(counts[at] / all)}</span></li>`)}</ul>`;
}
