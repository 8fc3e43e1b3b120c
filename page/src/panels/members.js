// Who is in the run now; one of its workers leaves it after its step, or is expelled at once.
import { useRef, useState } from "preact/hooks";
import { act, report } from "../ask.js";
import { Card, Table } from "../card.js";
import { html } from "../html.js";
import { many, moment, number } from "../words.js";

const GONE = ["lost", "left"];

export function Members({ id, facts }) {
  return facts.roster.length > 0 && html`<${Card} name="members" title="Workers" wide>${() => html`<${Roster} id=${id} facts=${facts} />`}<//>`;
}

function Roster({ id, facts }) {
  const [said, say] = useState("");
  const [busy, wait] = useState(false);
  const [rank, choose] = useState(null); // that is to be expelled, once it is asked about
  const asks = useRef(null);
  const leave = (one, now) => {
    say("");
    wait(true);
    act("leave", { run: id }, { rank: one, now }).catch((error) => say(error.message)).finally(() => wait(false));
  };
  const expel = () => { asks.current.close(); leave(rank, true); };
  const buttons = ({ rank: one, state }) => !GONE.includes(state) && html`<span class="tools">
    <button type="button" aria-label=${`Leave: rank ${one}`} disabled=${busy || state === "leaves"} onClick=${() => leave(one, false)}>Leave</button>
    <button type="button" class="grave" aria-label=${`Expel … rank ${one}`} disabled=${busy} onClick=${() => { choose(one); asks.current.showModal(); }}>Expel …</button></span>`;
  const fixed = report || facts.fixed;
  return html`<div class="tall"><${Table} caption="workers of the run" right=${[4, 5]} head=${["worker", "host", "since", "state", "step", "samples/s", ""].slice(0, fixed ? 6 : 7)}
      rows=${facts.roster.map((one) => [`rank ${one.rank}`, one.host || "–", moment(one.since), one.until ? `${one.state} ${moment(one.until)}` : one.state,
        one.step === null ? "–" : many(one.step), number(one.samples_per_s), ...(fixed ? [] : [buttons(one)])])} /></div>
    ${facts.fixed && !report && html`<p class="quiet">Nobody can leave: ${facts.fixed}.</p>`}
    ${said && html`<p class="error said" role="alert">${said}</p>`}
    <dialog ref=${asks} aria-labelledby="expels"><h2 id="expels">Expel rank ${rank} at once?</h2>
      <p>It is given up, whatever it does, and cannot come back. The others go on as if it were lost.</p>
      <form method="dialog" class="tools"><button autofocus>Keep it</button><button type="button" class="grave" onClick=${expel}>Expel</button></form></dialog>`;
}
