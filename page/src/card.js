// A card of the page: it is filled when it comes into view.
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { html } from "./html.js";

export function useVisible() {
  const ref = useRef(null);
  const [seen, set] = useState(false);
  useEffect(() => {
    const watch = new IntersectionObserver((entries) => set(entries.at(-1).isIntersecting), { rootMargin: "200px" });
    watch.observe(ref.current);
    return () => watch.disconnect();
  }, []);
  return [ref, seen];
}

// children: a function of whether the card is in view. size: of the row that it is in: wide (all), major, or minor.
export function Card({ name, title, aside, wide, size = wide ? "wide" : "", children }) {
  const [ref, seen] = useVisible();
  const id = useId();
  return html`<section class=${`card ${size}`} ref=${ref} aria-labelledby=${id} data-card=${name}>
    <header><h2 id=${id}>${title}</h2>${aside}</header>
    ${children(seen)}
  </section>`;
}

// chart: a chart will stand here, and what is below it does not move when it comes
export function Waiting({ answer, empty, chart }) {
  if (answer.error) return html`<p class="error" role="alert">${answer.error}</p>`;
  return html`<p class=${chart ? "quiet chart" : "quiet"}>${answer.data ? empty : "reading …"}</p>`;
}

export function Table({ caption, head, rows, right = [] }) {
  const cell = (text, column) => html`<td class=${right.includes(column) ? "number" : ""}>${text}</td>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}><table>
    <caption class="unseen">${caption}</caption>
    <thead><tr>${head.map((text, column) => (text ? html`<th scope="col" class=${right.includes(column) ? "number" : ""}>${text}</th>` : html`<td></td>`))}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${row.map(cell)}</tr>`)}</tbody>
  </table></div>`;
}
