import { Card, Table } from "../card.js";
import { html } from "../html.js";
import { hour, moment } from "../words.js";

const SHOWN = 100;

export function Happened({ facts }) {
  const newest = facts.happened.slice(-SHOWN).reverse();
  return html`<${Card} name="happened" title="What happened" size="major">${() => (newest.length
    ? html`<div class="tall"><${Table} caption="events, the newest first" head=${["when", "what"]} rows=${newest.map((one) => [html`<time title=${moment(one.at)}>${hour(one.at)}</time>`, html`<span class="said">${one.text}</span>`])} /></div>`
    : html`<p class="quiet">Nothing yet.</p>`)}<//>`;
}
