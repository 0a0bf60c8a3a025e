// Predictions of an older version are asked for again, a few at a time, those in view first.

import { predict } from "./predicting.js";
import { pause } from "./service.js";
import { refresh } from "./status.js";
import { images } from "./words.js";

const MOST_AT_ONCE = 8;
const FIRST_WAIT = 0.15;
const LONGEST_WAIT = 2;
// Of the time, so that an update every second leaves the service time for others.
const REST = 2;
const at = (id) => document.getElementById(id);

let cards = () => [];
let newest = 0; // the version that has learnt everything
let published = 0; // the version that predicts now
let running = false;

// `list` returns the cards of the page.
export function renewFrom(list) {
  cards = list;
}

// Something was taught: predictions before this version are old.
export function expect(version) {
  newest = Math.max(newest, version);
  renew();
}

const isOld = (card) => card.state === "open" && card.version < newest;

function show() {
  const old = cards().filter(isOld);
  const wanted = at("predict-on").checked;
  for (const card of cards()) card.showAge(!isOld(card) ? "" : wanted ? "updating …" : "of an older version");
  at("renewing").hidden = !wanted || old.length === 0;
  at("renewing").textContent = `updating ${images(old.length)} …`;
  return wanted && !document.hidden ? old : [];
}

export async function renew() {
  const any = show().length > 0;
  if (running || !any) return;
  running = true;
  try {
    for (let wait = FIRST_WAIT, old = show(); old.length > 0; old = show()) {
      // A button must not change under a finger.
      const ready = old.filter(({ version, element }) => version < published && !element.querySelector("button:active"));
      if (ready.length === 0) {
        await pause(wait);
        await refresh();
        wait = Math.min(2 * wait, LONGEST_WAIT);
        continue;
      }
      const began = performance.now();
      const version = await predict(inOrder(ready).slice(0, MOST_AT_ONCE));
      if (version === null) return; // the next status is another chance
      published = Math.max(published, version);
      show();
      wait = FIRST_WAIT;
      await pause(Math.max(FIRST_WAIT, (REST * (performance.now() - began)) / 1000));
    }
  } finally {
    running = false;
    show();
  }
}

// Those in view first, then the oldest.
function inOrder(some) {
  const places = new Map(some.map((card) => [card, card.element.getBoundingClientRect()]));
  const seen = (card) => places.get(card).bottom > 0 && places.get(card).top < innerHeight;
  return some.toSorted((a, b) => seen(b) - seen(a) || a.version - b.version || a.number - b.number);
}

// The same version may be published a second time, solved more exactly: that is not worth another prediction.
document.addEventListener("status", ({ detail: status }) => {
  newest = status.version;
  published = status.snapshot_version;
  renew();
});
at("predict-on").addEventListener("change", renew);
