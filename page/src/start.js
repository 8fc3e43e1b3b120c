// A new run: a session file of the folder that the page was started in, with settings changed.
import { useState } from "preact/hooks";
import { act, useAnswer } from "./ask.js";
import { SettingsForm } from "./form.js";
import { html } from "./html.js";

export function Start() {
  const files = useAnswer("sessions", {}, 0);
  const [chosen, choose] = useState("");
  if (!files.data) return html`<main><h1>New run</h1><p class="quiet">${files.error || "reading …"}</p></main>`;
  const names = files.data.files;
  const name = names.includes(chosen) ? chosen : files.data.first || names[0];
  const start = (overrides) => act("train", { session: name }, { overrides }).then(({ run }) => { location.hash = `#/run/${run}`; });
  return html`<main>
    <h1>New run</h1>
    ${!files.data.starts ? html`<p>This page is served beyond its own machine, and starts nothing there.</p>` : !name ? html`<p>There is no session file in the folder that the page was started in. <code>volary init</code> writes one.</p>` : html`
      <div class="tools"><label>Session file <select onChange=${(event) => choose(event.target.value)}>${names.map((one) => html`<option value=${one} selected=${one === name}>${one}</option>`)}</select></label></div>
      <${SettingsForm} key=${name} of=${{ session: name }} words=${`volary train ${name}`} verb="Start" start=${start} />`}
  </main>`;
}
