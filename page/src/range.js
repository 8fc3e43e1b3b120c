// Which steps all charts of a run show: by dragging in one of them, or by these buttons.
import { html } from "./html.js";
import { many } from "./words.js";

export function Range({ newest, range, set, seen }) {
  const [first, last] = range ?? [1, Math.max(1, newest)];
  const width = last - first + 1;
  const to = (low, high) => {
    const [begin, end] = [Math.max(1, Math.round(low)), Math.min(Math.max(1, newest), Math.round(high))];
    set(begin <= 1 && end >= newest ? null : [Math.min(begin, end), end]);
  };
  const button = (title, sign, low, high, off) => html`<button type="button" title=${title} aria-label=${title} disabled=${off} onClick=${() => to(low, high)}>${sign}</button>`;
  const step = Math.max(1, width / 2);
  return html`<div class="tools range" role="toolbar" aria-label="steps shown">
    ${button("earlier", "←", first - step, last - step, first <= 1)}
    ${button("zoom in", "+", first + width / 4, last - width / 4, width < 4)}
    ${button("zoom out", "−", first - width / 2, last + width / 2, !range)}
    ${button("later", "→", first + step, last + step, last >= newest)}
    ${button("all steps", "all", 1, newest, !range)}
    <span role="status">steps ${many(first)} to ${many(last)}${seen && seen.points > 0 ? `; showing ${many(seen.x.length)} of ${many(seen.points)} points${seen.width > 1 ? `, each with the least and the greatest of ${many(seen.width)} steps` : ""}` : ""}</span>
  </div>`;
}
