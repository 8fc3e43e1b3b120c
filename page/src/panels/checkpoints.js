import { Card, Table } from "../card.js";
import { html } from "../html.js";
import { many, number } from "../words.js";

export function Checkpoints({ facts }) {
  return html`<${Card} name="checkpoints" title="Checkpoints" size="minor">${() => (facts.checkpoints.length
    ? html`<${Table} caption="checkpoints that are kept" right=${[0, 1]} head=${["step", facts.metric || "metric", "files"]} rows=${facts.checkpoints.map((one) => [many(one.step), number(one.metric), one.condition])} />`
    : html`<p class="quiet">None yet.</p>`)}<//>`;
}
