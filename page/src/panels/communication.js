// What travels: bytes over time, by which route, and what was chosen for each layer, and why.
import { useMemo } from "preact/hooks";
import { useAnswer } from "../ask.js";
import { Card, Table, Waiting } from "../card.js";
import { Chart } from "../chart.js";
import { SERIES } from "../colours.js";
import { html } from "../html.js";
import { brief, many, number, percent, size } from "../words.js";

export function Communication({ facts, steps, range, onRange }) {
  return html`<${Card} name="communication" title="Communication" wide>${() => {
    const series = useMemo(() => steps && [
      { label: "sent", colour: SERIES[0], values: steps.sent_bytes_per_step },
      { label: "received", colour: SERIES[1], values: steps.received_bytes_per_step },
    ], [steps]);
    if (!steps?.points) return html`<${Waiting} answer=${{ data: steps }} empty="No step yet." />`;
    const total = (values) => values.findLast((value) => value !== null) ?? 0;
    const quiet = !total(steps.sent_bytes) && !total(steps.received_bytes);
    return html`${facts.route && html`<p>${facts.route}${facts.update && `; updated ${facts.update}`}</p>`}
      <p class="quiet">${quiet ? "No bytes were handed to the network." : `In these steps all workers together sent ${size(total(steps.sent_bytes))} and received ${size(total(steps.received_bytes))}.`}</p>
      ${!quiet && html`<${Chart} label="Bytes of a worker in a step" x=${steps.x} series=${series} range=${range} onRange=${onRange} format=${size} from0 />`}
      ${saved(steps, facts.exact_bytes_per_step)}
      ${facts.traffic.length > 0 && html`<h3>Bytes by codec and route</h3>
        <${Table} caption="bytes of all workers by codec and route" right=${[2, 3, 4, 5]} head=${["codec", "route", "sent", "received", "as they are", "saved"]} rows=${byRoute(facts.traffic)} />`}
      ${facts.ways && html`<h3>What was chosen for each layer</h3>
        <p class="quiet">${facts.ways.bytes_per_s ? `links carry ${size(facts.ways.bytes_per_s)}/s` : "links were not measured"}</p>
        <${Table} caption="the way of each layer" right=${[2, 3]} head=${["layer", "way", "bytes", "expected", "why"]}
          rows=${facts.ways.table.map(([layer, way, bytes, seconds, why]) => [layer, way, size(bytes), brief(seconds), why])} />
        <h3>Bytes by way</h3><${Table} caption="what travels by each way" right=${[1, 2]} head=${["way", "layers", "bytes"]} rows=${byWay(facts.ways.table)} />
        ${facts.choices.length > 1 && html`<h3>What was chosen over time</h3>
          <${Table} caption="the way of each layer at each choice" head=${["layer", ...facts.choices.map((one) => `step ${many(one.step ?? 0)}`)]} rows=${overTime(facts.choices)} />`}`}`;
  }}<//>`;
}

// What a worker sent in a step, beside what it would send as 32-bit values.
function saved(steps, exact) {
  const sent = steps.sent_bytes_per_step.filter((value) => value !== null);
  const mean = sent.reduce((sum, value) => sum + value, 0) / (sent.length || 1);
  if (!exact || !mean) return null;
  const words = mean < 0.98 * exact ? `${percent(1 - mean / exact)} less` : mean > 1.02 * exact ? `${number(mean / exact)} times as much` : "as much";
  return html`<p>A worker sends ${size(mean)} in a step; as 32-bit values these would be ${size(exact)}: <b>${words}</b>.</p>`;
}

// Of the whole run: what went over each route by each codec, beside what the same values would have taken as they are.
function byRoute(traffic) {
  const sum = (name) => traffic.reduce((total, one) => total + one[name], 0);
  const all = { codec: "all", route: "", sent_bytes: sum("sent_bytes"), received_bytes: sum("received_bytes"), plain_bytes: sum("plain_bytes") };
  return (traffic.length > 1 ? [...traffic, all] : traffic).map((one) => {
    const travelled = one.sent_bytes + one.received_bytes;
    const saved = travelled && travelled !== one.plain_bytes;
    return [one.codec, one.route, size(one.sent_bytes), size(one.received_bytes), size(one.plain_bytes),
      saved ? `${percent(1 - travelled / one.plain_bytes)}, ${number(one.plain_bytes / travelled)} times fewer` : "–"];
  });
}

function byWay(table) {
  const ways = [...new Set(table.map(([, way]) => way))];
  return ways.map((way) => { const some = table.filter((row) => row[1] === way); return [way, many(some.length), size(some.reduce((sum, row) => sum + row[2], 0))]; });
}

function overTime(choices) {
  const layers = [...new Set(choices.flatMap((one) => one.table.map(([layer]) => layer)))];
  const way = (one, layer) => one.table.find(([name]) => name === layer)?.[1] ?? "–";
  return layers.map((layer) => [layer, ...choices.map((one, at) => (at && way(one, layer) !== way(choices[at - 1], layer) ? html`<b>${way(one, layer)}</b>` : way(one, layer)))]);
}
