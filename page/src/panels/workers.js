// What each worker does with its time, over the steps that are shown, and where it runs.
import { useAnswer } from "../ask.js";
import { Card, Table, Waiting } from "../card.js";
import { PHASES, REST } from "../colours.js";
import { html } from "../html.js";
import { brief, many, size } from "../words.js";

export function Workers({ id, tick, first, last, facts }) {
  return html`<${Card} name="workers" title="Time by worker and phase" wide>${(seen) => {
    const answer = useAnswer("ranks", { run: id, first, last, columns: 1 }, tick, seen);
    if (!answer.data?.points) return html`<${Waiting} answer=${answer} empty="No step yet." />`;
    const ranks = answer.data.ranks;
    const longest = Math.max(...ranks.map((one) => one.mean.step_s)) || 1;
    const bar = (mean) => {
      const parts = PHASES.map(([name, word, colour]) => [word, colour, mean[`${name}_s`]]);
      const rest = Math.max(0, mean.step_s - parts.reduce((sum, [, , value]) => sum + value, 0));
      return html`<span class="bar" aria-hidden="true">${[...parts, ["rest", REST, rest]].map(([word, colour, value]) => html`<i title=${`${word} ${brief(value)}`} style=${{ background: colour, width: `${(100 * value) / longest}%` }}></i>`)}</span>`;
    };
    return html`<${Table} caption="mean of a step, by worker" right=${[1, 3, 4, 5, 6, 7, 8, 9, 10]}
      head=${["worker", "step", "", ...PHASES.map(([, word, colour]) => html`<i class="dot" style=${{ background: colour }}></i>${word}`), "sent", "received", "steps"]}
      rows=${ranks.map(({ rank, mean }) => [
        html`rank ${rank}${facts.hosts[rank] && html` <span class="quiet">${facts.hosts[rank]}</span>`}`,
        brief(mean.step_s), bar(mean), ...PHASES.map(([name]) => brief(mean[`${name}_s`])), size(mean.sent_bytes), size(mean.received_bytes), many(mean.steps)])} />`;
  }}<//>`;
}
