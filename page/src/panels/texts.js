// What a network of symbols writes, evaluation by evaluation.
import { useState } from "preact/hooks";
import { useAnswer } from "../ask.js";
import { Card, Waiting } from "../card.js";
import { html } from "../html.js";
import { many } from "../words.js";

export function Texts({ id, tick }) {
  const [wanted, want] = useState(null); // null: the newest
  return html`<${Card} name="texts" title="What it writes" wide>${(seen) => {
    const answer = useAnswer("texts", { run: id }, tick, seen);
    const found = answer.data ?? [];
    if (!found.length) return html`<${Waiting} answer=${answer} empty="Nothing was written yet." />`;
    const at = wanted === null ? found.length - 1 : Math.min(wanted, found.length - 1);
    const one = found[at];
    return html`<div class="tools"><label>At step <input type="range" min="0" max=${found.length - 1} step="1" value=${at} aria-valuetext=${`step ${one.step}`} onInput=${(event) => want(Number(event.target.value) === found.length - 1 ? null : Number(event.target.value))} /></label>
        <span role="status" class="quiet">${many(one.step)}${wanted === null ? ", the newest" : ""}</span></div>
      <pre tabindex="0" class="written"><b>${one.prompt}</b>${one.text}</pre>`;
  }}<//>`;
}
