import { useAnswer } from "../ask.js";
import { Card, Waiting } from "../card.js";
import { html } from "../html.js";

export function Session({ id }) {
  return html`<${Card} name="session" title="Session" wide>${(seen) => {
    const answer = useAnswer("session", { run: id }, 0, seen);
    if (!answer.data) return html`<${Waiting} answer=${answer} empty="" />`;
    return html`<pre class="tall" tabindex="0" aria-label="every setting with its value">${answer.data.session || "no session file"}</pre>
      <details><summary>what it ran on</summary><pre tabindex="0">${answer.data.environment}</pre></details>`;
  }}<//>`;
}
