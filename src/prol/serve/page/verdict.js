// What is seen in an image: one sentence, and a bar for each of the most probable labels.

import { percent, quoted } from "./words.js";

// One in twenty images of known classes is as strange.
const LIKELY_NEW = 0.95;
const SURE = 0.9;

export const noneOfThese = ({ unknown }) => unknown !== null && unknown >= LIKELY_NEW;

// `labels` are the most probable ones, best first, with calibrated probabilities.
export function verdict(prediction) {
  const { labels } = prediction;
  if (labels.length === 0) return "Nothing is learnt yet: say what it is.";
  if (noneOfThese(prediction)) return "Probably none of these.";
  const [best, second] = labels;
  if (second === undefined) return `Only ${quoted(best.label)} is known so far.`;
  if (best.probability >= SURE) return `${quoted(best.label)}, ${percent(best.probability)}`;
  if (best.probability >= 0.5) return `Probably ${quoted(best.label)}, ${percent(best.probability)}`;
  return `Perhaps ${quoted(best.label)}, or ${quoted(second.label)}`;
}

// Probabilities are those among the known classes, so without a second class, or where none fits, they say little.
export function bars({ labels }) {
  return labels.length < 2 ? [] : labels.map(({ label, score, probability }) => bar(String(label), probability, `score ${score}`));
}

export function meaning({ unknown }) {
  if (unknown === null) return "";
  return `More unusual than ${percent(unknown)} of the images of known classes.`;
}

function bar(name, share, title) {
  const row = document.createElement("li");
  row.className = "guess";
  row.title = title;
  const label = document.createElement("bdi");
  label.textContent = name;
  const track = document.createElement("span");
  track.className = "track";
  const fill = document.createElement("span");
  fill.className = "fill";
  fill.style.setProperty("--share", String(share));
  track.append(fill);
  const value = document.createElement("span");
  value.className = "value";
  value.textContent = percent(share);
  row.append(label, track, value);
  return row;
}
