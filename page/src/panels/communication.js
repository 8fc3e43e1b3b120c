// What travels: bytes over time, by which route, and what was chosen for each layer, and why.
import { useMemo } from "preact/hooks";
import { useAnswer } from "../ask.js";
import { Card, Table, Waiting } from "../card.js";
import { Chart } from "../chart.js";
import { SERIES } from "../colours.js";
import { html } from "../html.js";
import { brief, size } from "../words.js";

export function Communication({ facts, steps, range, onRange }) {
  return html`<${Card} name="communication" title="Communication">${() => {
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
      ${facts.ways && html`<h3>What was chosen for each layer</h3>
        <p class="quiet">${facts.ways.bytes_per_s ? `links carry ${size(facts.ways.bytes_per_s)}/s` : "links were not measured"}</p>
        <${Table} caption="the way of each layer" right=${[2, 3]} head=${["layer", "way", "bytes", "expected", "why"]}
          rows=${facts.ways.table.map(([layer, way, bytes, seconds, why]) => [layer, way, size(bytes), brief(seconds), why])} />`}`;
  }}<//>`;
}
