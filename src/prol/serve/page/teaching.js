// Teaches: as a late label while the service remembers its prediction, else with the file itself.

import { BAD_INPUT, batches, mostPerRequest } from "./predicting.js";
import { isNumber } from "./labels.js";
import { newKey, request, sendJson } from "./service.js";
import { noteChunk } from "./undoing.js";

const MOST_FILES = 32;

// Keys of updates whose response never came: sent again, they must not count twice.
const unanswered = new Map();

// Returns how many were learnt, how many of them had been predicted correctly, the version, and what went wrong.
export async function teach(cards, label) {
  await Promise.allSettled(cards.map((card) => card.predicted));
  const outcome = { learnt: 0, correct: 0, version: 0, problem: null };
  for (const card of cards) card.teaching(label);
  const forgotten = cards.filter((card) => card.id === null);
  const remembered = cards.filter((card) => card.id !== null);
  const most = mostPerRequest(); // one chunk, if possible: undo takes back one
  for (let start = 0; start < remembered.length; start += most) {
    forgotten.push(...(await teachLate(remembered.slice(start, start + most), label, outcome)));
  }
  for (const batch of batches(forgotten, MOST_FILES)) await teachFiles(batch, label, outcome);
  return outcome;
}

// Returns the cards whose prediction the service has forgotten.
async function teachLate(cards, label, outcome) {
  const labels = cards.map(({ id }) => ({ id, label }));
  try {
    const response = await once(labels, (key) => sendJson("POST", "labels", { labels }, key));
    const unknown = new Set(response.unknown_ids);
    markTaught(cards.filter(({ id }) => !unknown.has(id)), label, response, outcome);
    outcome.correct += response.correct;
    return cards.filter(({ id }) => unknown.has(id));
  } catch (error) {
    if (error.status === 404) return cards;
    fail(cards, error, outcome);
    return [];
  }
}

async function teachFiles(cards, label, outcome) {
  const form = new FormData();
  for (const card of cards) form.append("images", card.file, "image");
  form.append("labels", String(label));
  if (isNumber(label)) form.append("integers", "true");
  const send = (key) => request("learn", { method: "POST", body: form, headers: { "Idempotency-Key": key } });
  try {
    const response = await once([cards.map(({ number }) => number), label], send);
    markTaught(cards, label, response, outcome);
  } catch (error) {
    if (cards.length === 1 || !BAD_INPUT.includes(error.status)) fail(cards, error, outcome);
    else for (const card of cards) await teachFiles([card], label, outcome);
  }
}

function markTaught(cards, label, { version }, outcome) {
  for (const card of cards) card.taught(label);
  noteChunk(version, cards);
  outcome.learnt += cards.length;
  outcome.version = Math.max(outcome.version, version);
}

function fail(cards, error, outcome) {
  for (const card of cards) card.reopen(error.message);
  outcome.problem = error.message;
}

export async function once(content, send) {
  const signature = JSON.stringify(content);
  const key = unanswered.get(signature) ?? newKey();
  unanswered.set(signature, key);
  try {
    const response = await send(key);
    unanswered.delete(signature);
    return response;
  } catch (error) {
    // A proxy may fail though the update was learnt: only an error of the service itself is final.
    if (error.status >= 400 && error.status < 500) unanswered.delete(signature);
    throw error;
  }
}
