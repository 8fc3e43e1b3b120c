// Who was slow, when, by what, and how much of a step the others waited for it.
import { Card, Table } from "../card.js";
import { html } from "../html.js";
import { many, percent } from "../words.js";

const WORDS = { exchange: "communication", optimizer: "optimiser" };

export function Stragglers({ facts }) {
  if (!facts.stragglers.length) return null;
  return html`<${Card} name="stragglers" title="Stragglers" wide>${() => html`
    <${Table} caption="who was slow" right=${[1, 2]} head=${["worker", "steps", "others waited", "slow in", "in words"]}
      rows=${[...facts.stragglers].reverse().map((one) => [html`<span class="whole">${one.rank === null ? "all" : `rank ${one.rank}`}</span>`, one.to === null ? `from ${many(one.from)}` : `${many(one.from)} to ${many(one.to)}`,
        percent(one.share), html`<span class="whole">${WORDS[one.cause] ?? one.cause}</span>`, html`<span class="said">${one.reason}</span>`])} />`}<//>`;
}
