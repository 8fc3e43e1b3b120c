// What workers and servers printed, as one: the error that came first on top, equal lines once, searched on the server.
import { useState } from "preact/hooks";
import { report, useAnswer } from "../ask.js";
import { Card, Waiting } from "../card.js";
import { html } from "../html.js";
import { many, size } from "../words.js";

export function Logs({ id, tick }) {
  const [words, search] = useState("");
  return html`<${Card} name="logs" title="Logs" wide>${(seen) => {
    const answer = useAnswer("logs", { run: id, words: report ? "" : words }, tick, seen);
    if (!answer.data) return html`<${Waiting} answer=${answer} empty="" />`;
    const { files, found, lines, first_error: first } = answer.data;
    const shown = report && words ? lines.filter((line) => line.text.toLowerCase().includes(words.toLowerCase())) : lines;
    return html`${first && html`<div class="wrong"><p class="grave">${first.who} on ${first.host} failed first, at step ${first.step}${first.phase && `, in ${first.phase}`}: <span class="said">${first.reason}</span></p>
        ${first.lines.length > 0 && html`<pre tabindex="0" aria-label="its traceback">${first.lines.join("\n")}</pre>`}</div>`}
      <div class="tools"><label>Search <input type="search" value=${words} onInput=${(event) => search(event.target.value)} /></label>
        <span role="status" class="quiet">${many(shown.length)} of ${many(found)} lines; ${files.map((file) => `${file.name} ${size(file.size_bytes)}${file.from_start ? "" : ", its end"}`).join("; ")}</span></div>
      ${shown.length ? html`<div class="tall log" tabindex="0" role="log" aria-label="lines of all logs"><table><tbody>${shown.map((line) => html`<tr><th scope="row">${whose(line.who, files.length)}</th><td>${line.text}</td></tr>`)}</tbody></table></div>` : html`<p class="quiet">Nothing was printed${words && " with these words"}.</p>`}`;
  }}<//>`;
}

function whose(who, of) {
  if (who.length === of && of > 1) return `all ${of}`;
  return who.length > 3 ? `${who[0]} and ${who.length - 1} more` : who.join(", ");
}
